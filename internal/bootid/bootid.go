// Package bootid tells one start of the host from another. What was not synced to disk
// does not outlive such a start, nor does any process.
package bootid

import "sync"

// Get returns the id of the host's present start, which this process cannot outlive.
var Get = sync.OnceValues(read)
