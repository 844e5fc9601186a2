package faults

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// journalLog records, at the proxy, which entries of one update's journal the server has
// acknowledged.
type journalLog struct {
	mu      sync.Mutex
	path    string       // of the update's batches, once known
	batches []*sentBatch // in the order of their first transmission
	refused []int        // statuses of the server's refusals
}

// sentBatch is a batch that was sent at least once. If acked is false, the server may have stored
// it only if open is true.
type sentBatch struct {
	header      http.Header
	body        string
	entries     []json.RawMessage
	acked, open bool
}

// see records a call to the server, with its answer or the error of the transport.
func (j *journalLog) see(r *http.Request, q request, a answer, err error) {
	if q.call != callJournal {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.path == "" {
		j.path = r.URL.Path
	}
	if j.path != r.URL.Path {
		return // of a later update
	}
	b := j.batch(r, q)
	switch {
	case err != nil:
		b.open = true
	case a.code/100 == 2:
		b.acked = true
	default:
		j.refused = append(j.refused, a.code)
	}
}

func (j *journalLog) batch(r *http.Request, q request) *sentBatch {
	body := string(q.body)
	i := slices.IndexFunc(j.batches, func(b *sentBatch) bool { return b.body == body })
	if i >= 0 {
		return j.batches[i]
	}
	b := &sentBatch{header: r.Header.Clone(), body: body, entries: entriesOf(q.body)}
	j.batches = append(j.batches, b)
	return b
}

// entriesOf decodes a batch; it returns none of a body that is not JSON.
func entriesOf(body []byte) []json.RawMessage {
	plain := io.Reader(bytes.NewReader(body))
	if z, err := gzip.NewReader(bytes.NewReader(body)); err == nil {
		plain = z
	}
	var batch struct {
		Entries []json.RawMessage `json:"entries"`
	}
	if json.NewDecoder(plain).Decode(&batch) != nil {
		return nil
	}
	return batch.Entries
}

func (j *journalLog) acked() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := 0
	for _, b := range j.batches {
		if b.acked {
			n++
		}
	}
	return n
}

// creating reports whether the server has acknowledged that the slow resources are being created.
func (j *journalLog) creating() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.ContainsFunc(j.batches, func(b *sentBatch) bool {
		return b.acked && slices.ContainsFunc(b.entries, func(e json.RawMessage) bool {
			return bytes.Contains(e, []byte(`"creating"`)) && bytes.Contains(e, []byte("lab:index:Sleep"))
		})
	})
}

func (j *journalLog) refusals() []int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.refused)
}

// possible returns the journals that the server may have: all acknowledged batches, with and
// without each batch whose answer is unknown.
func (j *journalLog) possible() [][]json.RawMessage {
	j.mu.Lock()
	defer j.mu.Unlock()
	all := [][]json.RawMessage{{}}
	for _, b := range j.batches {
		if !b.acked && !b.open {
			continue
		}
		var with [][]json.RawMessage
		for _, entries := range all {
			with = append(with, append(slices.Clone(entries), b.entries...))
		}
		if b.acked {
			all = with
		} else {
			all = append(with, all...)
		}
	}
	return all
}

// reset forgets everything: the next batch is of the next update.
func (j *journalLog) reset() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.path, j.batches, j.refused = "", nil, nil
}

// last returns the newest batch and its path.
func (j *journalLog) last() (path string, b *sentBatch) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.path, j.batches[len(j.batches)-1]
}

func isJournal(path string) bool { return strings.HasSuffix(path, "/journalentries") }
