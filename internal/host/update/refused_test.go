package update

import (
	"strings"
	"testing"

	"workflowagent/internal/host/release"
)

// TestRefused checks updates that fail before the swap. The old version must remain current and
// running, no leftovers may remain, and a later update must succeed.
func TestRefused(t *testing.T) {
	t.Parallel()
	stranger := newKey(t)
	sums, sig := release.ChecksumsFile, release.ChecksumsFile+release.SignatureSuffix
	for name, tt := range map[string]struct {
		want string
		// stage changes the files of a valid v1.1.0. It can also request another version.
		stage func(t *testing.T, h *house, f files) (version string, _ files)
	}{
		"tampered archive": {"SHA-256 sum is not the signed one", func(_ *testing.T, _ *house, f files) (string, files) {
			f[archiveName("v1.1.0")][100] ^= 1
			return "v1.1.0", f
		}},
		"truncated archive": {"SHA-256 sum is not the signed one", func(_ *testing.T, _ *house, f files) (string, files) {
			f[archiveName("v1.1.0")] = f[archiveName("v1.1.0")][:200]
			return "v1.1.0", f
		}},
		"tampered checksums": {"no release key has made", func(_ *testing.T, _ *house, f files) (string, files) {
			f[sums] = append(f[sums], []byte(strings.Repeat("0", 64)+"  more\n")...)
			return "v1.1.0", f
		}},
		"a foreign signature": {"no release key has made", func(t *testing.T, _ *house, f files) (string, files) {
			f[sig] = sign(t, stranger, f[sums])
			return "v1.1.0", f
		}},
		"damaged signature": {"no release key has made", func(_ *testing.T, _ *house, f files) (string, files) {
			f[sig] = f[sig][:len(f[sig])-1]
			return "v1.1.0", f
		}},
		"empty signature": {"no release key has made", func(_ *testing.T, _ *house, f files) (string, files) {
			f[sig] = nil
			return "v1.1.0", f
		}},
		"no signature": {"no such file", func(_ *testing.T, _ *house, f files) (string, files) {
			delete(f, sig)
			return "v1.1.0", f
		}},
		"no checksums": {"no such file", func(_ *testing.T, _ *house, f files) (string, files) {
			delete(f, sums)
			return "v1.1.0", f
		}},
		"no archive": {"no such file", func(_ *testing.T, _ *house, f files) (string, files) {
			delete(f, archiveName("v1.1.0"))
			return "v1.1.0", f
		}},
		"downgrade": {"never installs an older version", func(t *testing.T, h *house, _ files) (string, files) {
			return "v0.9.0", newRelease(t, h.key, "v0.9.0", polls)
		}},
		"candidate of what is installed": {"never installs an older version", func(t *testing.T, h *house, _ files) (string, files) {
			return "v1.0.0-rc.1", newRelease(t, h.key, "v1.0.0-rc.1", polls)
		}},
		"old release under a new name": {"belongs to another release", func(t *testing.T, h *house, _ files) (string, files) {
			old := newRelease(t, h.key, "v0.9.0", polls)
			old[archiveName("v1.1.0")] = old[archiveName("v0.9.0")]
			return "v1.1.0", old
		}},
		"old archive in a new signed list": {"not in the directory", func(t *testing.T, h *house, _ files) (string, files) {
			return "v1.1.0", signed(t, h.key, files{archiveName("v1.1.0"): pack(t, contents("v0.9.0", polls))})
		}},
		"program of another version": {`reports the version "v0.9.0"`, func(t *testing.T, h *house, _ files) (string, files) {
			entries := contents("v1.1.0", polls)
			entries[1].content = program("v0.9.0", polls)
			return "v1.1.0", signed(t, h.key, files{archiveName("v1.1.0"): pack(t, entries)})
		}},
		"program that does not start": {"does not start", func(t *testing.T, h *house, _ files) (string, files) {
			entries := contents("v1.1.0", polls)
			entries[1].content = "#!/bin/sh\necho broken >&2\nexit 1\n"
			return "v1.1.0", signed(t, h.key, files{archiveName("v1.1.0"): pack(t, entries)})
		}},
		"program of another platform": {"does not start", func(t *testing.T, h *house, _ files) (string, files) {
			entries := contents("v1.1.0", polls)
			entries[1].content = "\x7fELF for nobody"
			return "v1.1.0", signed(t, h.key, files{archiveName("v1.1.0"): pack(t, entries)})
		}},
		"request with a path": {"not the version of a release", func(_ *testing.T, _ *house, f files) (string, files) {
			return "v1.1.0/../../v1.1.0", f
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, "v1.0.0")
			version, f := tt.stage(t, h, newRelease(t, h.key, "v1.1.0", polls))
			h.put(t, version, f)
			pid := h.pid(t)
			result, err := h.applier().Apply(t.Context(), h.stage)
			if err == nil || !strings.Contains(err.Error(), tt.want) || result.Outcome != Nothing {
				t.Errorf("Apply: %+v, %v, want an error with %q", result, err, tt.want)
			}
			h.works(t, "v1.0.0")
			if h.pid(t) != pid {
				t.Error("the service was restarted")
			}
			h.updates(t, "v1.1.0")
		})
	}
}
