package words

import (
	"math"
	"testing"
	"time"
)

func TestDurations(t *testing.T) {
	for _, tt := range []struct {
		d           time.Duration
		long, short string
	}{
		{-time.Hour, "0 ms", "0s"},
		{999 * time.Millisecond, "999 ms", "0s"},
		{time.Second, "1 s", "1s"},
		{1560 * time.Millisecond, "1.5 s", "1s"},
		{9999 * time.Millisecond, "9.9 s", "9s"},
		{59*time.Second + 999*time.Millisecond, "59 s", "59s"},
		{3*time.Minute + 12*time.Second, "3 min 12 s", "3m12s"},
		{10 * time.Minute, "10 min", "10m00s"},
		{time.Hour + 5*time.Minute, "1 h 5 min", "1h05m"},
		{24*time.Hour - time.Second, "23 h 59 min", "23h59m"},
		{48 * time.Hour, "2 d", "2d00h"},
		{27*time.Hour + 5*time.Minute, "1 d 3 h", "1d03h"},
	} {
		if long, short := Duration(tt.d), Short(tt.d); long != tt.long || short != tt.short {
			t.Errorf("%v: got %q and %q, want %q and %q", tt.d, long, short, tt.long, tt.short)
		}
	}
}

func TestElapsed(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0:00", 999 * time.Millisecond: "0:00", 3*time.Minute + 2*time.Second: "3:02", time.Hour - 1: "59:59", time.Hour: "1:00:00", 27*time.Hour + 65*time.Second: "27:01:05",
	} {
		if got := Elapsed(d); got != want {
			t.Errorf("%v: got %q, want %q", d, got, want)
		}
	}
}

func TestNumbers(t *testing.T) {
	for got, want := range map[string]string{
		Bytes(-1):                     "0 B",
		Bytes(1023):                   "1023 B",
		Bytes(3 << 29):                "1.5 GiB",
		Bytes(uint64(math.MaxUint64)): "16 EiB",
		Number(-1234567):              "-1,234,567",
		Count(1, "agent"):             "1 agent",
		Count(0, "agent"):             "0 agents",
		Count(int64(12000), "line"):   "12,000 lines",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestSoon(t *testing.T) {
	now := time.Date(2026, 11, 27, 22, 30, 0, 0, time.UTC) // a Friday
	for _, tt := range []struct {
		in   time.Duration
		want string
	}{
		{time.Hour, "23:30"},
		{2 * time.Hour, "Sat"},
		{6 * 24 * time.Hour, "Thu"},
		{7 * 24 * time.Hour, "4 Dec"},
		{-24 * time.Hour, "26 Nov"},
	} {
		if got := Soon(now.Add(tt.in), now); got != tt.want {
			t.Errorf("in %v: got %q, want %q", tt.in, got, tt.want)
		}
	}
}
