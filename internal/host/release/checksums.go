package release

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
)

// Checksums maps the names of a release's files to their SHA-256 sums.
type Checksums map[string][32]byte

// ParseChecksums parses a list whose signature has been verified. The list has the format of
// sha256sum: on each line, the hexadecimal sum, two spaces and the name.
func ParseChecksums(text []byte) (Checksums, error) {
	sums := Checksums{}
	for i, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		digits, name, ok := strings.Cut(line, "  ")
		sum, err := hex.DecodeString(digits)
		if !ok || err != nil || len(sum) != 32 || name == "" || name != path.Base(name) || strings.ContainsAny(name, "\\\x00") || name == "." || name == ".." {
			return nil, fmt.Errorf("%s:%d: a line must be a SHA-256 sum in hexadecimal, two spaces and a file name", ChecksumsFile, i+1)
		}
		if _, twice := sums[name]; twice {
			return nil, fmt.Errorf("%s:%d: %s is listed twice", ChecksumsFile, i+1, name)
		}
		sums[name] = [32]byte(sum)
	}
	return sums, nil
}

// WriteTo writes the list, sorted by name.
func (c Checksums) WriteTo(w io.Writer) (int64, error) {
	var text bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(c)) {
		fmt.Fprintf(&text, "%x  %s\n", c[name], name)
	}
	return text.WriteTo(w)
}
