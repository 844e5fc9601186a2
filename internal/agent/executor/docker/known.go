package docker

import (
	"context"
	"fmt"
	"time"

	"github.com/moby/moby/client"
)

// known is what was learned of an engine, which would take time to ask for each
// job. It holds for one connection: one that broke is forgotten, and this with it.
type known struct {
	engine   *client.Client
	thisHost bool                  // it runs on the agent's own host
	arch     string                // of its host; "" = not asked yet
	runs     map[string]bool       // other architectures whose programs it can run
	runners  map[string]seenVolume // volumes that hold their runner
	users    map[string]imageUser  // by the id of an image: reading files of it takes 50 ms and more
}

// seenVolume is a volume that was looked into.
type seenVolume struct {
	made  string    // when, in the engine's words, which are about seconds
	first time.Time // when it was seen first
	sure  bool      // no other volume can have the same name and time
}

// saw notes a volume that was looked into at a time. One that was made anew in the
// same second has the same words, so the look has to be younger than that.
func (k *known) saw(name, made string, at time.Time) {
	seen, ok := k.runners[name]
	if !ok || seen.made != made {
		seen = seenVolume{made: made, first: at}
	}
	seen.sure = seen.sure || at.Sub(seen.first) > 2*time.Second
	k.runners[name] = seen
}

// facts calls use with what is known of the engine, under the lock.
func (e *Executor) facts(engine *client.Client, use func(*known)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.known.engine != engine {
		e.known = known{engine: engine, runs: map[string]bool{}, runners: map[string]seenVolume{}, users: map[string]imageUser{}}
	}
	use(&e.known)
}

// architecture returns the architecture of the engine's host, as Go names it.
func (e *Executor) architecture(ctx context.Context, engine *client.Client) (string, error) {
	var arch string
	e.facts(engine, func(k *known) { arch = k.arch })
	if arch != "" {
		return arch, nil
	}
	version, err := engine.ServerVersion(ctx, client.ServerVersionOptions{})
	if err != nil {
		return "", fmt.Errorf("asking the Docker Engine for its architecture: %w", err)
	}
	e.facts(engine, func(k *known) { k.arch = version.Arch })
	return version.Arch, nil
}
