package blob_test

import (
	"bytes"
	"errors"
	"io"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/blob"
)

func TestPutReplaces(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		b, ctx := db.Blobs(), t.Context()
		if _, err := b.Get(ctx, "a/b"); !errors.Is(err, blob.ErrNotFound) {
			t.Fatalf("Get of nothing = %v, want ErrNotFound", err)
		}
		big := bytes.Repeat([]byte("0123456789"), 300_000) // several rows
		for _, want := range [][]byte{[]byte("one"), big, {}} {
			if err := b.Put(ctx, "a/b", bytes.NewReader(want)); err != nil {
				t.Fatal(err)
			}
			r, err := b.Get(ctx, "a/b")
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(r)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("read %d bytes (%v), want %d", len(got), err, len(want))
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
			if n, err := b.Size(ctx, "a/b"); err != nil || n != int64(len(want)) {
				t.Errorf("Size = %d, %v, want %d", n, err, len(want))
			}
		}
	})
}

func TestAppendIsIdempotent(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		b, ctx := db.Blobs(), t.Context()
		steps := []struct {
			offset int64
			data   string
			size   int64
			gap    bool
		}{
			{0, "hello", 5, false},
			{0, "hello", 5, false},      // repeated
			{3, "lo, world", 12, false}, // overlaps
			{14, "!", 12, true},         // leaves a hole
			{12, "!", 13, false},
			{-1, "x", 13, true},
		}
		before := int64(0)
		for _, s := range steps {
			size, added, err := b.Append(ctx, "logs/j/0", s.offset, []byte(s.data))
			if errors.Is(err, blob.ErrGap) != s.gap || (err != nil && !s.gap) {
				t.Fatalf("Append(%d, %q) = %v, want gap %v", s.offset, s.data, err, s.gap)
			}
			if size != s.size || added != size-before {
				t.Errorf("Append(%d, %q) = size %d, added %d; want %d, %d", s.offset, s.data, size, added, s.size, s.size-before)
			}
			before = size
		}
		if n, err := b.Sync(ctx, "logs/j/0", 0); err != nil || n != 13 {
			t.Errorf("Sync = %d, %v, want 13", n, err)
		}
		for _, r := range []struct {
			offset int64
			limit  int
			want   string
		}{{0, 100, "hello, world!"}, {3, 4, "lo, "}, {12, 5, "!"}, {13, 5, ""}, {99, 5, ""}} {
			got := make([]byte, r.limit)
			n, err := b.ReadAt(ctx, "logs/j/0", r.offset, got)
			if err != nil || string(got[:n]) != r.want {
				t.Errorf("ReadAt(%d, %d) = %q, %v, want %q", r.offset, r.limit, got[:n], err, r.want)
			}
		}
		if n, err := b.ReadAt(ctx, "logs/none", 0, make([]byte, 5)); err != nil || n != 0 {
			t.Errorf("ReadAt of nothing = %d bytes, %v", n, err)
		}
	})
}

func TestAppendFromManySenders(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		b, ctx := db.Blobs(), t.Context()
		text := strings.Repeat("abcdefghij", 500)
		var group sync.WaitGroup
		for range 4 {
			// Each goroutine sends the whole text in pieces. Together, they must not duplicate or
			// lose a byte.
			group.Go(func() {
				for off := 0; off < len(text); {
					end := min(off+777, len(text))
					size, _, err := b.Append(ctx, "l", int64(off), []byte(text[off:end]))
					if err != nil {
						t.Errorf("Append: %v", err)
						return
					}
					off = max(end, int(size))
				}
			})
		}
		group.Wait()
		got := make([]byte, 2*len(text))
		n, err := b.ReadAt(ctx, "l", 0, got)
		if err != nil || string(got[:n]) != text {
			t.Errorf("got %d bytes (%v), want the %d sent", n, err, len(text))
		}
	})
}

func TestDeleteTakesOnlyThePrefix(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		b, ctx := db.Blobs(), t.Context()
		for _, key := range []string{"s/1/a", "s/1/b/c", "s/10/a", "s/1-x"} {
			if err := b.Put(ctx, key, strings.NewReader("x")); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 { // deleting a missing blob is not an error
			if err := b.Delete(ctx, "s/1"); err != nil {
				t.Fatal(err)
			}
		}
		for key, want := range map[string]int64{"s/1/a": 0, "s/1/b/c": 0, "s/10/a": 1, "s/1-x": 1} {
			if n, err := b.Size(ctx, key); err != nil || n != want {
				t.Errorf("Size(%s) = %d, %v, want %d", key, n, err, want)
			}
		}
	})
}

func TestKeysStayInside(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		for _, key := range []string{"", "..", "a/../../b", "/etc/passwd", "a//b", "a/.", "a\x00b", ".hidden"} {
			if err := db.Blobs().Put(t.Context(), key, strings.NewReader("x")); err == nil {
				t.Errorf("Put(%q) worked", key)
			}
			if err := db.Blobs().Delete(t.Context(), key); err == nil {
				t.Errorf("Delete(%q) worked", key)
			}
		}
	})
}

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

// TestAppendsWithAnotherIsolation checks that concurrent writers of a blob wait for each other with any
// default isolation level of the database. Above READ COMMITTED, a writer that has waited does not see what
// the other has written.
func TestAppendsWithAnotherIsolation(t *testing.T) {
	for _, level := range []string{"repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			u, err := url.Parse(storetest.PostgresDSN(t))
			if err != nil {
				t.Fatal("parsing the address of a database failed")
			}
			query := u.Query()
			query.Set("default_transaction_isolation", level)
			u.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20")
			b, ctx := storetest.PostgresAt(t, u.String(), store.Timeouts{}).Blobs(), t.Context()
			var wg sync.WaitGroup
			for i := range 20 {
				wg.Go(func() {
					if _, _, err := b.Append(ctx, "log", 0, bytes.Repeat([]byte("x"), i+1)); err != nil {
						t.Errorf("appending: %v", err)
					}
					if err := b.Put(ctx, "state", strings.NewReader("state")); err != nil {
						t.Errorf("writing: %v", err)
					}
				})
			}
			wg.Wait()
			if size, err := b.Size(ctx, "log"); err != nil || size != 20 {
				t.Errorf("the size is %d, %v, want 20", size, err)
			}
		})
	}
}
