package states

import "sync"

// maxEntries bounds the number of entries, in all journals, whose progress a server keeps. An entry
// needs about 150 bytes. A server that has forgotten a journal reads it again.
const maxEntries = 1 << 20

// maxJournal bounds the number of entries of one journal, so that it leaves room for others. The
// CLI sends two or three entries per resource.
const maxJournal = maxEntries / 2

// emptySize is the size of a progress without entries, as a number of entries.
const emptySize = 50

// journals keeps the progress of the most recently used journals.
type journals struct {
	mu      sync.Mutex
	uses    int64
	entries int
	byID    map[string]*progress
}

// of returns the progress of an update's journal. If none is kept, it returns a new progress.
func (j *journals) of(updateID string) *progress {
	j.mu.Lock()
	defer j.mu.Unlock()
	p := j.byID[updateID]
	if p == nil {
		p = new(progress)
		if j.byID == nil {
			j.byID = map[string]*progress{}
		}
		j.byID[updateID] = p
	}
	j.uses++
	p.used = j.uses
	return p
}

// resize records the size of a progress, which the caller has locked. If there are too many
// entries, it forgets other journals.
func (j *journals) resize(updateID string, p *progress) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.byID[updateID] != p {
		return
	}
	j.entries -= p.size
	p.size = emptySize + len(p.entries)
	j.entries += p.size
	for j.entries > maxEntries && len(j.byID) > 1 {
		oldest := ""
		for id, other := range j.byID {
			if other != p && (oldest == "" || other.used < j.byID[oldest].used) {
				oldest = id
			}
		}
		j.remove(oldest)
	}
}

// forget drops the progress of a journal.
func (j *journals) forget(updateID string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.remove(updateID)
}

func (j *journals) remove(updateID string) {
	if p := j.byID[updateID]; p != nil {
		j.entries -= p.size
		delete(j.byID, updateID)
	}
}
