package release

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// The release channels. The beta channel includes the stable releases.
const (
	Stable = "stable"
	Beta   = "beta"
)

// ChannelFile returns the name of a channel's file in a mirror. Its signature is in the same
// directory.
func ChannelFile(channel string) string { return channel + ".txt" }

// Channel is the content of a channel file.
type Channel struct {
	Version   string    // version of the newest release
	Published time.Time // with a precision of one second
}

// maxChannelFile limits the size of a channel file, in bytes.
const maxChannelFile = 4 << 10

// ParseChannel parses a channel file whose signature has been verified. The file consists of lines
// of the form NAME: VALUE. The names version and published (in RFC 3339 format) must each occur
// once. Other names are reserved for later versions.
func ParseChannel(text []byte) (Channel, error) {
	var c Channel
	if len(text) > maxChannelFile {
		return c, fmt.Errorf("a channel file has at most %d bytes", maxChannelFile)
	}
	seen := map[string]bool{}
	for i, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		name, value, ok := strings.Cut(line, ": ")
		if !ok || seen[name] {
			return Channel{}, fmt.Errorf("line %d of the channel file is not a new NAME: VALUE", i+1)
		}
		seen[name] = true
		var err error
		switch name {
		case "version":
			c.Version, err = value, CheckVersion(value)
		case "published":
			c.Published, err = time.Parse(time.RFC3339, value)
		}
		if err != nil {
			return Channel{}, fmt.Errorf("line %d of the channel file: %w", i+1, err)
		}
	}
	if c.Version == "" || c.Published.IsZero() {
		return Channel{}, errors.New("the channel file must have the lines version and published")
	}
	return c, nil
}

// Text returns the content of the channel file.
func (c Channel) Text() []byte {
	return fmt.Appendf(nil, "version: %s\npublished: %s\n", c.Version, c.Published.UTC().Format(time.RFC3339))
}
