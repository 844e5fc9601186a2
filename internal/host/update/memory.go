package update

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/google/renameio/v2"

	"workflowagent/internal/durable"
	"workflowagent/internal/host/release"
)

// ErrReplay is the error of a mirror that serves a state from before one that was
// seen already.
var ErrReplay = errors.New("the mirror serves an older state than it did before")

// seen is what a memory holds of one channel of one home.
type seen struct {
	Home      string    `json:"home"`
	Channel   string    `json:"channel"`
	Version   string    `json:"version"`
	Published time.Time `json:"published"`
}

// remember compares a channel file, whose signature is good, with the newest one that
// was seen, and remembers it. The publisher may take a release back by a later file
// with a lower version; that is never a reason to install it.
func remember(path, home, channel string, now release.Channel) error {
	if path == "" {
		return nil
	}
	known := map[string]seen{}
	text, err := readPlain(path, maxSmall)
	if err == nil {
		err = json.Unmarshal(text, &known)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading what was seen of the mirror: %w; remove %s if you trust the mirror", err, path)
	}
	key := fmt.Sprintf("%.8x", sha256.Sum256([]byte(home+"\x00"+channel)))
	before, ok := known[key]
	older := now.Published.Before(before.Published) || now.Published.Equal(before.Published) && now.Version != before.Version
	if ok && older {
		return fmt.Errorf("%w: its %s channel is at %s of %s, and was at %s of %s; nothing was changed", ErrReplay, channel,
			now.Version, now.Published.Format(time.RFC3339), before.Version, before.Published.Format(time.RFC3339))
	}
	latest := seen{Home: home, Channel: channel, Version: now.Version, Published: now.Published.UTC()}
	if ok && latest.Version == before.Version && latest.Published.Equal(before.Published) {
		return nil
	}
	known[key] = latest
	text, err = json.MarshalIndent(known, "", "  ")
	if err != nil {
		return err
	}
	// No secret, and readable for both accounts that look for updates.
	if err := durable.WriteFile(path, text, 0o644, renameio.IgnoreUmask()); err != nil {
		return fmt.Errorf("remembering the state of the mirror: %w", err)
	}
	return nil
}
