package protocol

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var frameTestTime = time.Date(2026, 11, 21, 7, 8, 9, 10_011_999, time.UTC)

func TestAppendFrame(t *testing.T) {
	const stamp = "2026-11-21T07:08:09.010011Z"
	long := strings.Repeat("x", MaxFrameText)
	for name, tc := range map[string]struct {
		fragment bool
		text     string
		want     string
	}{
		"a line":                            {text: "hello", want: stamp + " hello\n"},
		"an empty line":                     {text: "", want: stamp + " \n"},
		"a fragment":                        {fragment: true, text: "hel", want: stamp + "+hel\n"},
		"any bytes":                         {text: "a\x00b\rc\xff", want: stamp + " a\x00b\rc\xff\n"},
		"the longest text":                  {text: long, want: stamp + " " + long + "\n"},
		"longer than a frame":               {text: long + "y", want: stamp + "+" + long + "\n" + stamp + " y\n"},
		"longer, and fragment":              {fragment: true, text: long + "y", want: stamp + "+" + long + "\n" + stamp + "+y\n"},
		"newline within":                    {fragment: true, text: "a\nb", want: stamp + " a\n" + stamp + "+b\n"},
		"a character at the end of a frame": {text: long[1:] + "ö", want: stamp + "+" + long[1:] + "\n" + stamp + " ö\n"},
		"no character at the end":           {text: long[8:] + strings.Repeat("\xb6", 9), want: stamp + "+" + long[8:] + strings.Repeat("\xb6", 8) + "\n" + stamp + " \xb6\n"},
		"newline after 64 KiB":              {text: long + "\nb", want: stamp + " " + long + "\n" + stamp + " b\n"},
	} {
		t.Run(name, func(t *testing.T) {
			got := string(AppendFrame([]byte("before"), frameTestTime, tc.fragment, []byte(tc.text)))
			if diff := cmp.Diff("before"+tc.want, got); diff != "" {
				t.Errorf("frame differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFrameStamp(t *testing.T) {
	stamp := func(at time.Time) string {
		s := NewFrameStamp(at)
		return string(s[:])
	}
	const layout = "2006-01-02T15:04:05.000000Z"
	zone := time.FixedZone("east", 5*3600)
	for _, at := range []time.Time{
		frameTestTime, frameTestTime.In(zone), time.Unix(0, 0), time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC), time.Date(2024, 2, 29, 23, 0, 0, 1000, zone),
	} {
		if got, want := stamp(at), at.UTC().Format(layout); got != want {
			t.Errorf("NewFrameStamp(%v) = %q, want %q", at, got, want)
		}
	}
	if got := stamp(time.Date(12345, 1, 1, 0, 0, 0, 0, time.UTC)); got != "9999-12-31T23:59:59.999999Z" {
		t.Errorf("a year of five digits became %q", got)
	}
	if got := stamp(time.Date(-5, 1, 1, 0, 0, 0, 0, time.UTC)); got != "0000-01-01T00:00:00.000000Z" {
		t.Errorf("a negative year became %q", got)
	}
}

func TestParseFrame(t *testing.T) {
	good := "2026-11-21T07:08:09.010011Z+some text"
	f, n, err := ParseFrame([]byte(good + "\nrest"))
	if err != nil {
		t.Fatalf("ParseFrame: %v", err)
	}
	want := Frame{Time: frameTestTime.Truncate(time.Microsecond), Fragment: true, Text: []byte("some text")}
	if diff := cmp.Diff(want, f); diff != "" || n != len(good)+1 {
		t.Errorf("ParseFrame = %d bytes, want %d; differs (-want +got):\n%s", n, len(good)+1, diff)
	}
	for cut := range len(good) + 1 {
		if _, n, err := ParseFrame([]byte(good[:cut])); !errors.Is(err, io.ErrUnexpectedEOF) || n != 0 {
			t.Errorf("a frame torn after %d bytes: %d, %v", cut, n, err)
		}
	}
	stamp := good[:frameTime]
	for name, bad := range map[string]string{
		"no timestamp":      "hello\n",
		"short hello":       "h",
		"newline in stamp":  "2026-11-21T07:08:09\n",
		"unknown marker":    stamp + "-x\n",
		"month 13":          "2026-13-21T07:08:09.010011Z x\n",
		"February 30":       "2026-02-30T07:08:09.010011Z x\n",
		"hour 24":           "2026-02-03T24:08:09.010011Z x\n",
		"leap second":       "2026-02-03T23:59:60.010011Z x\n",
		"too much text":     stamp + " " + strings.Repeat("x", MaxFrameText+1),
		"much too much":     stamp + " " + strings.Repeat("x", MaxFrameText*4) + "\n",
		"one byte too much": stamp + " " + strings.Repeat("x", MaxFrameText+1) + "\n",
	} {
		if _, n, err := ParseFrame([]byte(bad)); !errors.Is(err, ErrBadFrame) || n != 0 {
			t.Errorf("%s: %d, %v, want ErrBadFrame", name, n, err)
		}
	}
}

func FuzzParseFrame(f *testing.F) {
	f.Add([]byte("2026-11-21T07:08:09.010011Z some text\nmore"))
	f.Add([]byte("2026-11-21T07:08:09.010011Z+"))
	f.Add([]byte("2026-02-31T07:08:09.010011Z \n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		frame, n, err := ParseFrame(b)
		if err != nil {
			if n != 0 || (!errors.Is(err, ErrBadFrame) && !errors.Is(err, io.ErrUnexpectedEOF)) {
				t.Fatalf("%d, %v", n, err)
			}
			return
		}
		if again := AppendFrame(nil, frame.Time, frame.Fragment, frame.Text); !bytes.Equal(again, b[:n]) {
			t.Fatalf("%q was parsed, but encodes as %q", b[:n], again)
		}
	})
}

func FuzzAppendFrame(f *testing.F) {
	f.Add([]byte("line\nfragment"), uint16(1), true, int64(1e18))
	f.Add([]byte("a long line"), uint16(20000), false, int64(-1))
	f.Fuzz(func(t *testing.T, text []byte, times uint16, fragment bool, nanos int64) {
		text = bytes.Repeat(text, 1+min(int(times), 1<<18/(1+len(text))))
		at := time.Unix(0, nanos)
		log := AppendFrame(nil, at, fragment, text)
		var back []byte
		for len(log) > 0 {
			frame, n, err := ParseFrame(log)
			if err != nil {
				t.Fatalf("ParseFrame: %v", err)
			}
			if !frame.Time.Equal(at.Truncate(time.Microsecond)) && nanos >= 0 {
				t.Fatalf("time %v became %v", at, frame.Time)
			}
			back = append(back, frame.Text...)
			if log = log[n:]; len(log) == 0 && frame.Fragment != fragment {
				t.Fatalf("last fragment = %v", frame.Fragment)
			}
			if !frame.Fragment {
				back = append(back, '\n')
			}
		}
		if !fragment {
			back = back[:len(back)-1]
		}
		if !bytes.Equal(back, text) {
			t.Fatalf("%q was decoded as %q", text, back)
		}
	})
}

func BenchmarkAppendFrame(b *testing.B) {
	text := bytes.Repeat([]byte("x"), 99)
	dst := make([]byte, 0, 1<<20)
	b.SetBytes(100)
	for b.Loop() {
		if len(dst) > 1<<20-200 {
			dst = dst[:0]
		}
		dst = AppendFrame(dst, frameTestTime, false, text)
	}
}
