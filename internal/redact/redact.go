// Package redact masks secrets in a stream of text.
//
// A [Set] holds the secrets of a job, each in the encodings in which tools print them, and may grow
// while output is being masked. A [Writer] replaces every occurrence by [Marker], however the
// stream is split into writes. Masking guards against accidents and is not a boundary: code in a
// job can print a secret in a form that no list foresees.
package redact

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// Marker replaces a secret in the output.
	Marker = "[secret]"

	// MinLength is the length in bytes below which a value is not masked: shorter ones occur by
	// chance, and masking them would make a log unreadable.
	MinLength = 6
)

// Secret is one value to be masked.
type Secret struct {
	// Name is for messages, such as the name of the secret's variable.
	Name  string
	Value string
}

// Options are the settings of a [Set]. The zero value is ready for use.
type Options struct {
	// FlushAfter limits how long lines that may begin a secret are held; zero means 50 ms.
	FlushAfter time.Duration
}

// Set is a growing set of secrets. It is safe for concurrent use.
type Set struct {
	opts    Options
	matcher atomic.Pointer[matcher]

	mu      sync.Mutex
	needles map[string]struct{}
	skipped []string
}

// New returns a set of the given secrets.
func New(secrets []Secret, opts Options) *Set {
	if opts.FlushAfter <= 0 {
		opts.FlushAfter = 50 * time.Millisecond
	}
	s := &Set{opts: opts, needles: make(map[string]struct{})}
	s.matcher.Store(newMatcher(nil))
	s.Add(secrets...)
	return s
}

// Add adds secrets. Once it returns, they are masked in later writes and in held text.
func (s *Set) Add(secrets ...Secret) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.needles)
	for _, secret := range secrets {
		if len(strings.TrimSpace(secret.Value)) < MinLength {
			// An empty value is the absence of a secret and needs no warning.
			if secret.Value != "" && !slices.Contains(s.skipped, secret.Name) {
				s.skipped = append(s.skipped, secret.Name)
			}
			continue
		}
		for _, form := range forms(secret.Value) {
			for piece := range pieces(form) {
				s.needles[piece] = struct{}{}
			}
		}
	}
	if len(s.needles) == before {
		return
	}
	needles := make([]string, 0, len(s.needles))
	for needle := range s.needles {
		needles = append(needles, needle)
	}
	s.matcher.Store(newMatcher(needles))
}

// Skipped returns the names of the secrets that are not masked because they are shorter than
// [MinLength] without surrounding space, so that the caller can warn.
func (s *Set) Skipped() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.skipped)
}

// String returns text with all secrets masked. It is for single messages, such as errors; the end
// of text is the end of the stream, see [Writer.Close].
func (s *Set) String(text string) string {
	var sc scanner
	masked, _ := sc.scan(s.matcher.Load(), []byte(text), endOfStream)
	return string(masked)
}
