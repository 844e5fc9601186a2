// Package redact masks secrets in a stream of text.
//
// A [Set] contains the secrets of a job, each in the encodings in which tools print them. It can
// grow while output is being masked. A [Writer] replaces every occurrence with [Marker], regardless
// of how the stream is split into writes. Masking guards against accidents and is not a security
// boundary: code in a job can print a secret in a form that no list foresees.
package redact

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

const (
	// Marker replaces a secret in the output.
	Marker = "[secret]"

	// MinLength is the minimum length of a value that is masked, in bytes. Shorter values occur by
	// chance, and masking them would make a log unreadable.
	MinLength = 6
)

// Secret is a value to be masked.
type Secret struct {
	// Name identifies the secret in messages, for example the name of its variable.
	Name  string
	Value string
}

// Set is a set of secrets that can grow. It is safe for concurrent use.
type Set struct {
	matcher atomic.Pointer[matcher]

	mu      sync.Mutex
	needles map[string]struct{}
	skipped []string
}

// New returns a set of the given secrets.
func New(secrets ...Secret) *Set {
	s := &Set{needles: make(map[string]struct{})}
	s.matcher.Store(newMatcher(nil))
	s.Add(secrets...)
	return s
}

// Add adds secrets to the set. After it returns, they are masked in later writes and in held text.
func (s *Set) Add(secrets ...Secret) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.needles)
	for _, secret := range secrets {
		if len(strings.TrimSpace(secret.Value)) < MinLength {
			// An empty value means that the secret is absent, which needs no warning.
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
	s.matcher.Store(newMatcher(slices.Sorted(maps.Keys(s.needles))))
}

// Skipped returns the names of the secrets that are not masked because, without surrounding space,
// they are shorter than [MinLength]. The caller can warn about them.
func (s *Set) Skipped() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.skipped)
}

// String returns text with all secrets masked. It is for single messages, such as errors. The end
// of text counts as the end of the stream; see [Writer.Close].
func (s *Set) String(text string) string {
	var sc scanner
	masked, _ := sc.scan(s.matcher.Load(), []byte(text), endOfStream)
	return string(masked)
}

// Has reports whether text might contain a secret. If it returns false, [Set.String] returns text
// unchanged. Has stops at the first occurrence.
func (s *Set) Has(text []byte) bool {
	m := s.matcher.Load()
	if m.window == 0 {
		return false
	}
	for pos := m.next(text, 0); pos+m.window <= len(text); pos = m.next(text, pos+1) {
		if length, partial := m.match(text[pos:]); length > 0 || partial {
			return true
		}
	}
	return m.tail(text) >= MinLength
}
