package redact

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestHostileSecretsAreCheapToMask limits the processor time of masking, because one user can
// choose both the secrets and the text to keep the server busy.
func TestHostileSecretsAreCheapToMask(t *testing.T) {
	const size = 256 << 10
	var alike, short, lengths, quotes []string
	for i := range 120 {
		alike = append(alike, fmt.Sprintf("%s%04d", strings.Repeat("a", 2000), i))
	}
	for i := range 20_000 {
		short = append(short, fmt.Sprintf("aaaaaa%05d", i))
	}
	for i := range 600 {
		lengths = append(lengths, strings.Repeat("a", MinLength+i))
	}
	lengths = append(lengths, strings.Repeat("a", MinLength+600)+"b")
	for i := range 50 {
		quotes = append(quotes, strings.Repeat(`\"<&`, i)+fmt.Sprint(i))
	}
	for _, tc := range []struct {
		name    string
		secrets []string
		text    string
	}{
		{"a long beginning is shared", alike, "a"},
		{"a short beginning is shared", []string{strings.Join(short, "\n")}, "aaaaaa9z"},
		{"secrets that begin with others", []string{strings.Join(lengths, "\n")}, "aaaaaaac"},
		{"the longest of secrets that begin with others", []string{strings.Join(lengths, "\n")}, "a"},
		{"quotes and escapes", quotes, `\"<&`},
		{"one that is long", []string{strings.Repeat("a", 32<<10) + "b"}, "a"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var secrets []Secret
			for _, s := range tc.secrets {
				secrets = append(secrets, Secret{Value: s})
			}
			set := New(secrets...)
			text := strings.Repeat(tc.text, size/len(tc.text))
			// Masking takes about 50 ms, or a second with the race detector on a busy machine.
			begin := processorTime(t)
			set.String(text)
			if took := processorTime(t) - begin; took > 4*time.Second {
				t.Errorf("masking %d bytes took %v of a processor", len(text), took)
			}
		})
	}
}

// processorTime returns the processor time used by the test, on which the machine's load has little
// effect.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	used := cpuTime()
	if used < 0 {
		t.Fatal("reading the processor time failed")
	}
	return used
}

func cpuTime() time.Duration {
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) != nil {
		return -1
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func TestLongSecretsAreMaskedInPieces(t *testing.T) {
	var b strings.Builder
	for i := 0; b.Len() < 5*maxNeedle; i++ {
		fmt.Fprintf(&b, "%d.", i*i)
	}
	for _, size := range []int{maxNeedle, maxNeedle + 1, 2*maxNeedle - MinLength, 2*maxNeedle + 1, 5 * maxNeedle} {
		secret := b.String()[:size]
		set := New([]Secret{{"long", secret}}...)
		if got := set.matcher.Load().longest; got > maxNeedle {
			t.Errorf("of %d bytes: %d bytes are searched for at once", size, got)
		}
		for _, cuts := range [][]byte{nil, {0}, {99, 2}} {
			if got := mask(t, set, "a "+secret+" b", cuts); got != "a [secret] b" {
				t.Errorf("of %d bytes, cuts %v: masked as %q", size, cuts, got)
			}
		}
		for end := MinLength; end < size; end += 1 + end%7 {
			if got := set.String("a " + secret[:end]); got != "a [secret]" {
				t.Fatalf("of %d bytes, cut off at %d: masked as %q", size, end, got)
			}
		}
	}
}
