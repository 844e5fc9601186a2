package redact

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
)

// maskCost is what building a set took.
type maskCost struct {
	Memory    uint64 // largest size of the heap in bytes
	Processor time.Duration
	Slowness  float64 // of this machine and build, compared with the one on which the limits were chosen
}

// costShapes are 128 KiB of secrets in the shapes that need most memory or time.
var costShapes = map[string]func(rnd *rand.Rand) []Secret{
	"tokens":  func(rnd *rand.Rand) []Secret { return shapedSecrets(rnd, plainLetters, 262, 500, "") },
	"symbols": func(rnd *rand.Rand) []Secret { return shapedSecrets(rnd, symbols, 8192, 16, "") },
	"lines": func(rnd *rand.Rand) []Secret {
		return shapedSecrets(rnd, symbols, 1, 128<<10, "\n")
	},
}

const plainLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

const symbols = "\"'\\<>&$`+/=äé\u2028😀\x7f%{!"

// shapedSecrets returns secrets of the given size. With a separator, every 16 bytes are a line.
func shapedSecrets(rnd *rand.Rand, letters string, count, size int, separator string) []Secret {
	all := []rune(letters)
	var out []Secret
	for i := range count {
		var b strings.Builder
		for next := 16; b.Len() < size-4; {
			b.WriteRune(all[rnd.IntN(len(all))])
			if separator != "" && b.Len() >= next {
				b.WriteString(separator)
				next = b.Len() + 16
			}
		}
		for b.Len() < size {
			b.WriteByte('x')
		}
		out = append(out, Secret{fmt.Sprint(i), b.String()})
	}
	return out
}

// costChild is set in the process that builds the set and nothing else.
const costChild = "REDACT_TEST_COST"

func TestMain(m *testing.M) {
	if shape := os.Getenv(costChild); shape != "" {
		reportMaskCost(costShapes[shape])
		return
	}
	os.Exit(m.Run())
}

// costSample is the time that the sample of reportMaskCost takes on the slowest machine on which the
// limit of two seconds holds.
const costSample = 200 * time.Millisecond

func reportMaskCost(shape func(*rand.Rand) []Secret) {
	rnd := rand.New(rand.NewPCG(1, 2))
	// The same work on a small scale shows how fast this machine is, also with the race detector.
	used := cpuTime()
	for range 8 {
		New(shapedSecrets(rnd, symbols, 64, 32, "")...)
	}
	slowness := max(1, float64(cpuTime()-used)/float64(costSample))

	secrets := shape(rnd)
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	used = cpuTime()
	set, err := Build(context.Background(), secrets...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	used = cpuTime() - used
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(set)
	_ = json.NewEncoder(os.Stdout).Encode(maskCost{after.HeapSys - before.HeapAlloc, used, slowness})
}

// TestMaskCost limits what the secrets of one job cost the agent, because a user chooses them.
func TestMaskCost(t *testing.T) {
	for shape := range costShapes {
		t.Run(shape, func(t *testing.T) {
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), self)
			cmd.Env = append(os.Environ(), costChild+"="+shape, "GOGC=100", "GOMEMLIMIT=off")
			cmd.Stderr = os.Stderr
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("building the set: %v", err)
			}
			var cost maskCost
			if err := json.Unmarshal(out, &cost); err != nil {
				t.Fatalf("reading the cost: %v", err)
			}
			t.Logf("%d MiB, %v, slowness %.1f", cost.Memory>>20, cost.Processor, cost.Slowness)
			if cost.Memory > 100<<20 {
				t.Errorf("masking needs %d MiB", cost.Memory>>20)
			}
			if limit := time.Duration(cost.Slowness * float64(2*time.Second)); cost.Processor > limit {
				t.Errorf("building the set took %v of a processor, more than %v", cost.Processor, limit)
			}
		})
	}
}

func TestLimits(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	known := Secret{"known", "hunter22"}
	for name, secrets := range map[string][]Secret{
		"of bytes":   shapedSecrets(rnd, plainLetters, 9, 30<<10, ""),
		"of needles": shapedSecrets(rnd, symbols, 100, 64, ""),
	} {
		t.Run(name, func(t *testing.T) {
			set := New(known)
			if name == "of needles" {
				set.cost = maxCost - renewedCost - 1<<20 // as if it had almost as many as it can have
			}
			var limit *LimitError
			if err := set.Add(t.Context(), secrets...); !errors.As(err, &limit) || strings.Contains(err.Error(), secrets[0].Value) {
				t.Fatalf("Add: %v", err)
			}
			if got := set.String("hunter22 " + secrets[0].Value); got != "[secret] "+secrets[0].Value {
				t.Errorf("after the error, the set is not as before: %.99q", got)
			}
			if len(set.needlesForTest()) > 100 {
				t.Errorf("the set has kept %d needles", len(set.needlesForTest()))
			}
		})
	}
	if err := CheckJob(MaxJobBytes); err != nil {
		t.Errorf("CheckJob: %v", err)
	}
	if CheckJob(MaxJobBytes+1) == nil {
		t.Error("CheckJob accepts more than the limit")
	}
}

// TestSameSecretsAgain checks that steps can add the secrets of earlier steps again.
func TestSameSecretsAgain(t *testing.T) {
	secrets := shapedSecrets(rand.New(rand.NewPCG(1, 2)), plainLetters, 2, 100<<10, "")
	set := New()
	for range 5 {
		add(t, set, append(secrets, secrets...)...)
	}
}

func TestBuildEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped")
	cancel(stopped)
	if _, err := Build(ctx, Secret{"a", "hunter22"}); !errors.Is(err, stopped) {
		t.Errorf("Build: %v", err)
	}
}

func TestRenewedSecretsDoNotAccumulate(t *testing.T) {
	value := func(i int) string { return fmt.Sprintf("token-%06d", i) }
	set := New(Secret{"fixed", value(0)})
	most := 0
	for i := range 5 * keptValues {
		if err := set.Renew(t.Context(), Secret{"token", value(i)}, Secret{"other", value(1000 + i/9)}); err != nil {
			t.Fatalf("Renew: %v", err)
		}
		for _, masked := range []int{0, i, max(0, i-keptValues+1), 1000 + i/9} {
			if got := set.String(value(masked)); got != Marker {
				t.Fatalf("after %d renewals, value %d appears as %q", i, masked, got)
			}
		}
		if i == 2*keptValues {
			most = len(set.needlesForTest())
		}
	}
	if got := len(set.needlesForTest()); got > 2*most {
		t.Errorf("%d needles, and %d before", got, most)
	}
}
