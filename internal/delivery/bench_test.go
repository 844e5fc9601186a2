package delivery

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"workflowagent/internal/protocol"
	"workflowagent/internal/redact"
)

type sink struct{ at map[int]int64 }

func (k *sink) PutLog(_ context.Context, step int, offset int64, framed []byte, _ bool) (protocol.LogAck, error) {
	end := max(k.at[step], offset+int64(len(framed)))
	k.at[step] = end
	return protocol.LogAck{Received: end, Durable: end}, nil
}

// benchSize is the number of bytes in each round, in lines of 100 bytes.
const benchSize = 100 << 20

var benchLines = bytes.Repeat([]byte("@ updating....... "+string(bytes.Repeat([]byte("aws:s3:Bucket "), 6))[:81]+"\n"), 660)

func BenchmarkWrite(b *testing.B) {
	for _, size := range []int{100, 4 << 10, 64 << 10} {
		b.Run(fmt.Sprint("write=", size), func(b *testing.B) {
			sp := openSpool(b, b.TempDir(), Options{})
			s := openStep(b, sp, 0)
			startShipper(b, sp, &sink{make(map[int]int64)})
			b.SetBytes(int64(size))
			for b.Loop() {
				if _, err := s.Write(benchLines[:size]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkPath(b *testing.B) {
	var secrets []redact.Secret
	for i := range 20 {
		secrets = append(secrets, redact.Secret{Name: fmt.Sprint(i), Value: fmt.Sprintf("secret/%d+%032x", i, i*i*i*7919)})
	}
	set := redact.New(secrets...)
	b.SetBytes(benchSize)
	b.ReportAllocs()
	for b.Loop() {
		sp := openSpool(b, b.TempDir(), Options{})
		s := openStep(b, sp, 0)
		sh, stop := startShipper(b, sp, &sink{make(map[int]int64)})
		w := set.Writer(s)
		for n := 0; n < benchSize; n += len(benchLines) {
			if _, err := w.Write(benchLines); err != nil {
				b.Fatal(err)
			}
		}
		must(b, w.Close())
		must(b, s.Close())
		flush(b, sh)
		must(b, stop())
		must(b, sp.Close())
	}
}

func TestMemoryStaysFlat(t *testing.T) {
	sp := openSpool(t, t.TempDir(), Options{Limit: 4 << 20})
	s := openStep(t, sp, 0)
	server := &slowSink{sink{make(map[int]int64)}}
	sh, _ := startShipper(t, sp, server)
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before, peak := heap(), int64(0)
	for n := 0; n < 64<<20; n += len(benchLines) {
		if _, err := s.Write(benchLines); err != nil {
			t.Fatal(err)
		}
		if n%(8<<20) < len(benchLines) {
			peak = max(peak, heap())
		}
	}
	flush(t, sh)
	if grown := peak - before; grown > 4<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
	if s.Truncated() || server.at[0] != s.Size() {
		t.Errorf("truncated %v, the server has %d of %d bytes", s.Truncated(), server.at[0], s.Size())
	}
}

type slowSink struct{ sink }

func (k *slowSink) PutLog(ctx context.Context, step int, offset int64, framed []byte, compress bool) (protocol.LogAck, error) {
	select {
	case <-time.After(5 * time.Millisecond):
	case <-ctx.Done():
		return protocol.LogAck{}, ctx.Err()
	}
	return k.sink.PutLog(ctx, step, offset, framed, compress)
}
