package journal

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"strings"
	"testing"
)

// benchResource returns a resource of about 2 KB.
func benchResource(i int) string {
	return fmt.Sprintf(`{"urn":"urn:pulumi:dev::shop::test:index:Thing::thing-%d","custom":true,"id":"id-%d","type":"test:index:Thing",`+
		`"inputs":{"number":%d,"text":%q},"outputs":{"number":%d,"text":%q,"hash":"%032x"},`+
		`"parent":"urn:pulumi:dev::shop::pulumi:pulumi:Stack::shop-dev","dependencies":["urn:pulumi:dev::shop::test:index:Thing::thing-%d"],`+
		`"provider":"urn:pulumi:dev::shop::pulumi:providers:test::default::04da6b54-80e4-46f7-96ec-b56ff0331ba9",`+
		`"propertyDependencies":{"number":null,"text":["urn:pulumi:dev::shop::test:index:Thing::thing-%d"]},`+
		`"created":"2026-01-01T00:00:00Z","modified":"2026-01-01T00:00:00Z"}`,
		i, i, i, strings.Repeat("some text ", 60), i, strings.Repeat("some text ", 60), rand.Uint64(), max(0, i-1), max(0, i-1))
}

func benchState(n int) []byte {
	resources := make([]string, n)
	for i := range resources {
		resources[i] = benchResource(i)
	}
	return []byte(state(resources...))
}

// unchanged returns the batches of an update that changes nothing, as a CLI with the given
// parallelism sends them.
func unchanged(base *Deployment, parallel int) [][]byte {
	order := make([]int, len(base.Resources))
	for i := range order {
		order[i] = i
	}
	for i := range order {
		j := min(len(order)-1, i+rand.IntN(parallel))
		order[i], order[j] = order[j], order[i]
	}
	var batches [][]byte
	var batch bytes.Buffer
	for i, old := range order {
		fmt.Fprintf(&batch, `,{"version":1,"kind":0,"sequenceID":%d,"operationID":%d,"removeOld":null,"removeNew":null}`, 2*i+1, i+1)
		fmt.Fprintf(&batch, `,{"version":1,"kind":1,"sequenceID":%d,"operationID":%d,"removeOld":%d,"removeNew":null,"state":%s}`, 2*i+2, i+1, old, base.Resources[old])
		if i%50 == 49 || i == len(order)-1 {
			data := append(bytes.Clone(batch.Bytes()), ']')
			data[0] = '['
			batches = append(batches, data)
			batch.Reset()
		}
	}
	return batches
}

func parsed(b *testing.B, batches [][]byte) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for _, batch := range batches {
			entries, err := checkedEntries(batch)
			if err != nil {
				b.Error(err)
				return
			}
			for _, e := range entries {
				if !yield(e, nil) {
					return
				}
			}
		}
	}
}

// BenchmarkState measures the steps of folding an update that changes nothing, per state.
func BenchmarkState(b *testing.B) {
	for _, n := range []int{1000, 50000} {
		document := benchState(n)
		base, err := checkedState(document)
		if err != nil {
			b.Fatal(err)
		}
		batches := unchanged(base, 10)
		child, err := Replay(base, parsed(b, batches), testOptions())
		if err != nil {
			b.Fatal(err)
		}
		delta := deltaOf(base, child)
		for _, step := range []struct {
			name string
			run  func() error
		}{
			{"parse state", func() error { _, err := checkedState(document); return err }},
			{"parse journal", func() error {
				for range parsed(b, batches) {
				}
				return nil
			}},
			{"replay", func() error { _, err := Replay(base, parsed(b, batches), testOptions()); return err }},
			{"diff", func() error { return Diff(io.Discard, base, child) }},
			{"apply", func() error { _, err := Apply(base, delta, nil); return err }},
			{"write", func() error { _, err := child.WriteTo(io.Discard); return err }},
		} {
			b.Run(fmt.Sprintf("%d/%s", n, step.name), func(b *testing.B) {
				b.SetBytes(int64(len(document)))
				b.ReportAllocs()
				for b.Loop() {
					if err := step.run(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// TestDeltaIsSmall bounds the size of a delta that copies all resources in another order.
func TestDeltaIsSmall(t *testing.T) {
	const n = 4000
	base, err := checkedState(benchState(n))
	if err != nil {
		t.Fatal(err)
	}
	var entries []Entry
	for _, batch := range unchanged(base, 30) {
		more, err := checkedEntries(batch)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, more...)
	}
	child, err := Replay(base, sequence(entries), testOptions())
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(deltaOf(base, child)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if perResource := float64(packed.Len()) / n; perResource > 2 {
		t.Errorf("a copied resource has %.2f bytes, want at most 2", perResource)
	} else {
		t.Logf("%.2f bytes per copied resource", perResource)
	}
}
