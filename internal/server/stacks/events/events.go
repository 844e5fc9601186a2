// Package events packs the engine events of updates into compressed batches.
package events

import (
	"encoding/json"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/stacks/rawjson"
	"workflowagent/internal/server/store"
)

// Event is an engine event.
type Event struct {
	Sequence int64
	Body     []byte // JSON object
}

// Runs splits events, which are sorted by sequence number, into runs of consecutive numbers. It
// keeps the first of several events with the same number.
func Runs(sorted []Event) [][]Event {
	var runs [][]Event
	for i, e := range sorted {
		if i > 0 && e.Sequence == sorted[i-1].Sequence {
			continue
		}
		if last := len(runs) - 1; last >= 0 && e.Sequence == after(runs[last]) {
			runs[last] = append(runs[last], e)
			continue
		}
		runs = append(runs, []Event{e})
	}
	return runs
}

func after(run []Event) int64 { return run[len(run)-1].Sequence + 1 }

// Missing returns the events of a run that no stored batch contains.
func Missing(run []Event, stored []store.EventRange) []Event {
	var out []Event
	for _, e := range run {
		for len(stored) > 0 && stored[0].Last < e.Sequence {
			stored = stored[1:]
		}
		if len(stored) == 0 || e.Sequence < stored[0].First {
			out = append(out, e)
		}
	}
	return out
}

// encoders are reused, because each needs about 300 KiB and batches are small.
var encoders sync.Pool

func newEncoder() (*zstd.Encoder, error) {
	if z, ok := encoders.Get().(*zstd.Encoder); ok {
		return z, nil
	}
	return zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(window), zstd.WithLowerEncoderMem(true))
}

// window exceeds the size of nearly all batches.
const window = 1 << 20

// Pack returns the stored form of a run.
func Pack(run []Event) (store.EventBatch, error) {
	z, err := newEncoder()
	if err != nil {
		return store.EventBatch{}, fmt.Errorf("packing events: %w", err)
	}
	defer encoders.Put(z)
	size := len("[]")
	for _, e := range run {
		size += len(e.Body) + len(",")
	}
	list := append(make([]byte, 0, size), '[')
	for i, e := range run {
		if i > 0 {
			list = append(list, ',')
		}
		list = append(list, e.Body...)
	}
	list = append(list, ']')
	return store.EventBatch{
		Last: after(run) - 1, Events: int64(len(run)), Size: int64(len(list)), Packed: z.EncodeAll(list, nil),
	}, nil
}

// Unpack returns a batch's events with a sequence number of from or above. It fails if the events
// need more memory than the batch's size.
func Unpack(b store.EventBatch, from int64) ([]json.RawMessage, error) {
	if b.Size == 0 {
		return []json.RawMessage{json.RawMessage(b.Body)}, nil
	}
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		return nil, fmt.Errorf("unpacking events: %w", err)
	}
	defer z.Close()
	list, err := z.DecodeAll(b.Packed, make([]byte, 0, b.Size))
	if err != nil {
		return nil, damaged(err)
	}
	out := make([]json.RawMessage, 0, b.Events)
	for e := range rawjson.Elements(list) {
		out = append(out, e)
	}
	if int64(len(out)) != b.Events {
		return nil, damaged(fmt.Errorf("the batch contains %d events instead of %d", len(out), b.Events))
	}
	return out[max(0, from-(b.Last-b.Events+1)):], nil
}

func damaged(err error) error {
	return fault.Wrap(fault.KindDamaged, err, "stored events are damaged; the details are in the server's log")
}

// About reports whether an event is about a resource.
func About(event []byte, urn string) bool {
	for _, body := range rawjson.Members(event) {
		for name, value := range rawjson.Members(body) {
			switch name {
			case "metadata": // of a resource event
				value = rawjson.Member(value, "urn")
			case "urn", "resourceUrn": // of a diagnostic or policy event
			default:
				continue
			}
			var text string
			if value != nil && json.Unmarshal(value, &text) == nil && text == urn {
				return true
			}
		}
	}
	return false
}
