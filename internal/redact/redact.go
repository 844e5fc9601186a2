// Package redact masks secrets in a stream of text.
//
// A [Set] contains the secrets of a job, each in the encodings in which tools print them. It can
// grow while output is being masked. A [Writer] replaces every occurrence with [Marker], regardless
// of how the stream is split into writes and lines. Masking guards against accidents and is not a security
// boundary: code in a job can print a secret in a form that no list foresees.
package redact

import (
	"bytes"
	"context"
	"fmt"
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
	values  map[string]struct{} // the secrets that were added
	bytes   int                 // their total size
	needles []string            // their needles, in byte order
	cost    int                 // of these needles, except
	members int                 // of those for the members of structured secrets
	renewed map[string][]string // the last values of each renewed secret, newest last
	current []string            // the needles of renewed, in byte order
	skipped []string
}

// New returns a set of the given secrets. It panics if they exceed a limit. It is for tests and for
// programs that choose the secrets themselves; all others call [Build].
func New(secrets ...Secret) *Set {
	s, err := Build(context.Background(), secrets...)
	if err != nil {
		panic(err) //nolint:forbidigo // as documented, like regexp.MustCompile
	}
	return s
}

// Build returns a set of the given secrets. Its errors are those of [Set.Add].
func Build(ctx context.Context, secrets ...Secret) (*Set, error) {
	s := &Set{values: map[string]struct{}{}, renewed: map[string][]string{}}
	s.matcher.Store(newMatcher(nil))
	return s, s.Add(ctx, secrets...)
}

// Add adds secrets to the set. After it returns, they are masked in later writes and in held text.
// It takes time that is linear in the size of the whole set, so the caller passes all secrets at once.
//
// If the set would exceed a limit, Add returns a [LimitError], and if ctx ends, an error that wraps its
// cause. In both cases the set is unchanged, and the caller must not use the secrets.
func (s *Set) Add(ctx context.Context, secrets ...Secret) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := builder{cost: s.cost, members: s.members, limit: maxCost - renewedCost}
	size, fresh, short := s.bytes, map[string]struct{}{}, []string(nil)
	for _, secret := range secrets {
		if tooShort(secret.Value) {
			// An empty value means that the secret is absent, which needs no warning.
			if secret.Value != "" {
				short = append(short, secret.Name)
			}
			continue
		}
		if _, known := s.values[secret.Value]; known {
			continue
		}
		if _, known := fresh[secret.Value]; known {
			continue
		}
		fresh[secret.Value] = struct{}{}
		if size += len(secret.Value); size > maxBytes {
			return &LimitError{fmt.Sprintf("the secrets have more than %d bytes in all, which is too much to mask: use fewer or smaller secrets", maxBytes)}
		}
		if err := b.add(ctx, secret.Value); err != nil {
			return err
		}
	}
	s.skip(short)
	if len(fresh) == 0 {
		return nil
	}
	maps.Copy(s.values, fresh)
	s.bytes, s.cost, s.members = size, b.cost, b.members
	s.needles = merge(s.needles, b.sorted())
	s.matcher.Store(newMatcher(merge(s.needles, s.current)))
	return nil
}

// keptValues is the number of values of a renewed secret that are masked. Older ones have expired.
const keptValues = 16

// Renew adds secrets that replace earlier values of the same name. The earlier ones stay masked while
// they can be valid, but not for ever, so that a long job can renew its tokens any number of times. Its
// errors are those of [Set.Add].
func (s *Set) Renew(ctx context.Context, secrets ...Secret) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	renewed, changed := maps.Clone(s.renewed), false
	for _, secret := range secrets {
		values := renewed[secret.Name]
		if tooShort(secret.Value) || slices.Contains(values, secret.Value) {
			continue
		}
		changed = true
		values = append(slices.Clone(values), secret.Value)
		renewed[secret.Name] = values[max(0, len(values)-keptValues):]
	}
	if !changed {
		return nil
	}
	b := builder{limit: renewedCost}
	for _, values := range renewed {
		for _, value := range values {
			if err := b.add(ctx, value); err != nil {
				return err
			}
		}
	}
	s.renewed, s.current = renewed, b.sorted()
	s.matcher.Store(newMatcher(merge(s.needles, s.current)))
	return nil
}

// tooShort reports whether a value is not masked.
func tooShort(value string) bool { return len(visible(strings.TrimSpace(value))) < MinLength }

// skip records the names of secrets that are not masked. The caller holds the lock.
func (s *Set) skip(names []string) {
	s.skipped = append(s.skipped, names...)
	slices.Sort(s.skipped)
	s.skipped = slices.Compact(s.skipped)
}

// Size returns the approximate memory of the set in bytes.
func (s *Set) Size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return minSetBytes + s.cost + s.members + s.bytes
}

// minSetBytes is the memory of a set without secrets.
const minSetBytes = 64 << 10

// Skipped returns the names of the secrets that are not masked because, without surrounding space,
// and line breaks, they are shorter than [MinLength]. The caller can warn about them.
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
	if bytes.ContainsAny(text, "\n\r\x00\x1b") {
		text = []byte(visible(string(text)))
	}
	for pos := m.next(text, 0); pos+m.window <= len(text); pos = m.next(text, pos+1) {
		if length, partial := m.match(text[pos:]); length > 0 || partial {
			return true
		}
	}
	return m.tail(text) >= MinLength
}
