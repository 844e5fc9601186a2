package lru

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestCache uses values of given sizes one after another. Each step is the key of a value, which gets the
// size 10, or the size of its letter.
func TestCache(t *testing.T) {
	sizes := map[string]int{"medium": 40, "huge": 200}
	for _, tt := range []struct{ name, steps, kept string }{
		{"few", "a b c", "a b c"},
		{"too many", "a b c d e", "b c d e"},
		{"one used again", "a b c d a e f", "a d e f"},
		{"too large", "a b c medium medium", "a b c medium"},
		{"too large together", "a medium b medium2 c medium3", "b c medium2 medium3"},
		{"one too large", "a b huge", "huge"},
		{"after one too large", "a b huge c", "c"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := New[int](4, 100)
			total := func() (n int) {
				for _, v := range c.values {
					n += v.size
				}
				return n
			}
			for step := range strings.FieldsSeq(tt.steps) {
				size, known := sizes[strings.TrimRight(step, "23")]
				if !known {
					size = 10
				}
				v := c.Get(step)
				if *v != 0 && *v != size {
					t.Errorf("%s has the value of another key", step)
				}
				*v = size
				c.Resize(step, v, size)
				if total() != c.size {
					t.Errorf("after %s, the values have the size %d, and the cache counts %d", step, total(), c.size)
				}
			}
			if kept := strings.Join(slices.Sorted(maps.Keys(c.values)), " "); kept != tt.kept {
				t.Errorf("the cache keeps %s, want %s", kept, tt.kept)
			}
			for _, key := range slices.Collect(maps.Keys(c.values)) {
				c.Drop(key)
			}
			if c.size != 0 {
				t.Errorf("an empty cache has the size %d", c.size)
			}
		})
	}
}

// TestResizeOfDropped records the size of a value that the cache has dropped.
func TestResizeOfDropped(t *testing.T) {
	c := New[int](4, 100)
	v := c.Get("a")
	c.Drop("a")
	c.Resize("a", v, 10)
	c.Get("a")
	c.Resize("a", v, 10)
	if c.size != 0 {
		t.Errorf("the cache counts %d for a dropped value", c.size)
	}
}
