package request

import (
	"context"
	"net/http"
	"time"

	"workflowagent/internal/server/budget"
)

// Limits are the limits of requests in size, memory and time.
type Limits struct {
	Body        int64 // ordinary bodies, as sent and after decompression; default 8 MiB
	Batch       int64 // batches of events and secrets, as sent and after decompression; default 32 MiB
	BigBody     int64 // state uploads, as sent; default 64 MiB
	BigInflated int64 // state uploads after decompression; default 512 MiB
	// Together bounds the memory of all concurrent requests: bodies, their decoded forms, and
	// responses. The default is 1 GiB.
	Together int64
	// Patience is the maximum time that a request waits for memory. The default is 10 s.
	Patience time.Duration
	// Memory is the budget of the requests. The default is a new budget with the limits Together
	// and Patience.
	Memory *budget.Budget
	// Stall is the maximum time for which a client can make no progress in sending a body or
	// receiving a response. The default is 1 min.
	Stall time.Duration
	// Rate is the minimum speed of a client after the first stall, in bytes per second. The default
	// is 4 KiB.
	Rate int64
}

// WithDefaults returns l with defaults for the unset limits.
func (l Limits) WithDefaults() Limits {
	for _, f := range []struct {
		v   *int64
		def int64
	}{{&l.Body, 8 << 20}, {&l.Batch, 32 << 20}, {&l.BigBody, 64 << 20}, {&l.BigInflated, 512 << 20}, {&l.Together, 1 << 30}, {&l.Rate, 4 << 10}} {
		if *f.v <= 0 {
			*f.v = f.def
		}
	}
	if l.Patience <= 0 {
		l.Patience = 10 * time.Second
	}
	if l.Memory == nil {
		l.Memory = budget.New(l.Together, l.Patience)
	}
	if l.Stall <= 0 {
		l.Stall = time.Minute
	}
	return l
}

// Bounds are the limits of one body.
type Bounds struct {
	Sent, Inflated int64 // bytes
	Values         int64 // JSON values; member names are not counted
	text           textKind
}

// Each value in a body uses memory, however short it is.
const (
	ordinaryValues = 50_000
	batchValues    = 200_000
	// valueCost is the memory overhead of a decoded value, in bytes: an element in a slice or map
	// that has grown, and the header of the value to which that element points.
	valueCost = 192
	// maxDepth bounds the nesting of values, because decoders recurse.
	maxDepth = 500
)

// Ordinary returns the bounds of a small body whose members are stored in text columns.
func Ordinary(r *http.Request) Bounds {
	l := limitsOf(r)
	return Bounds{l.Body, l.Body, ordinaryValues, textColumns}
}

func documentBounds(r *http.Request) Bounds {
	b := Ordinary(r)
	b.text = textDocument
	return b
}

// Text returns the bounds of a body that is a text of at most limit bytes, and no JSON.
func Text(r *http.Request, limit int64) Bounds {
	limit = min(limit, limitsOf(r).Body)
	return Bounds{Sent: limit, Inflated: limit, text: textDocument}
}

// Batch returns the bounds of a batch of events or secrets.
func Batch(r *http.Request) Bounds {
	l := limitsOf(r)
	return Bounds{l.Batch, l.Batch, batchValues, textDocument}
}

// State returns the bounds of a body that contains a state, which is scanned without decoding.
func State(r *http.Request) Bounds {
	l := limitsOf(r)
	return Bounds{Sent: l.BigBody, Inflated: l.BigInflated, text: textDocument}
}

type limitsKey struct{}

// Bound returns middleware that gives each request its limits and a share of the memory budget.
func Bound(l Limits) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			begin := l.Memory.Begin
			if r.Method == http.MethodGet {
				begin = l.Memory.BeginRead
			}
			ctx, done := begin(context.WithValue(r.Context(), limitsKey{}, l))
			defer done()
			next.ServeHTTP(w, r.WithContext(ctx))
		})
	}
}

func limitsOf(r *http.Request) Limits {
	if l, ok := r.Context().Value(limitsKey{}).(Limits); ok {
		return l
	}
	return Limits{}.WithDefaults()
}
