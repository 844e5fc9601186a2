package deployments

import "sync"

// wakers wake requests that wait for a change: held polls, by the id of their organization, and
// readers of logs, by the id of the job.
type wakers struct {
	mu      sync.Mutex
	waiting map[chan struct{}]string
}

// join returns a channel that receives a value when what key names might have changed.
func (w *wakers) join(key string) (wake <-chan struct{}, leave func()) {
	c := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting == nil {
		w.waiting = map[chan struct{}]string{}
	}
	w.waiting[c] = key
	return c, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.waiting, c)
	}
}

// note wakes the requests that wait for key, or all requests if key is "" because notifications
// might have been missed.
func (w *wakers) note(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c, k := range w.waiting {
		if key != "" && k != key {
			continue
		}
		select {
		case c <- struct{}{}:
		default: // the request has not handled the previous note yet
		}
	}
}
