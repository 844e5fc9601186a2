package triggers

import (
	"strings"
	"testing"
	"time"

	"github.com/adhocore/gronx"

	"workflowagent/internal/server/fault"
)

func TestNextTime(t *testing.T) {
	at := func(text string) time.Time {
		when, err := time.Parse("2006-01-02 15:04:05", text)
		if err != nil {
			t.Fatal(err)
		}
		return when
	}
	for _, tt := range []struct{ expression, after, want string }{
		{"* * * * *", "2026-01-01 00:00:00", "2026-01-01 00:01:00"},
		{"* * * * *", "2026-01-01 00:00:59", "2026-01-01 00:01:00"},
		{"0 */4 * * *", "2026-01-01 20:00:00", "2026-01-02 00:00:00"},
		{"*/15 9-17 * * 1-5", "2026-01-02 17:45:00", "2026-01-05 09:00:00"}, // Friday to Monday
		{"0 0 1 * 1", "2026-01-02 00:00:00", "2026-01-05 00:00:00"},         // the first of a month, or a Monday
		{"0 0 31 * *", "2026-02-01 00:00:00", "2026-03-31 00:00:00"},
		{"0 0 29 2 *", "2096-03-01 00:00:00", "2104-02-29 00:00:00"}, // 2100 has no leap day
		{"0 0 * * 7", "2026-01-01 00:00:00", "2026-01-04 00:00:00"},
		{"0 0 * * FRI-SUN", "2026-01-03 00:00:00", "2026-01-04 00:00:00"}, // Saturday to Sunday
		{"0 0 * * fri-sun", "2026-01-04 00:00:00", "2026-01-09 00:00:00"},
		{"0 0 * * SUN-SUN", "2026-01-04 00:00:00", "2026-01-11 00:00:00"},
		{"59 23 31 12 *", "2026-12-31 23:59:00", "2027-12-31 23:59:00"},
		{"30 2 * * *", "2026-03-29 02:30:00", "2026-03-30 02:30:00"}, // clocks change in Europe, not in UTC
	} {
		got, err := NextTime(tt.expression, at(tt.after).In(time.FixedZone("CET", 3600)))
		if err != nil || !got.Equal(at(tt.want)) || got.Location() != time.UTC {
			t.Errorf("%q after %s: %v, %v, want %s", tt.expression, tt.after, got, err, tt.want)
		}
	}
	for _, expression := range []string{
		"", "   ", "every day", "* * * *", "* * * * * *", "0 * * * * *", "@daily", "@hourly * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * 32 * *",
		"* * * 13 *", "* * * * 8", "*/0 * * * *", "5-1 * * * *", "-1 * * * *", "1.5 * * * *", "0 0 30 2 *", "0 0 31 4,6 *", "CRON_TZ=UTC * * * *",
		"TZ= * * * *", "a b c d e", "0 0 1,LW * *", "0 0 * * 1,9", "25,99 * * * *", "\x00 * * * *", strings.Repeat("1,", 200) + "1 * * * *",
	} {
		if got, err := NextTime(expression, at("2026-01-01 00:00:00")); fault.KindOf(err) != fault.KindInvalid {
			t.Errorf("%q: %v, %v, want an error", expression, got, err)
		}
	}
}

func TestCronFieldNamed(t *testing.T) {
	for expression, want := range map[string]string{
		"60 * * * *":  `its minute is "60"`,
		"0 25 * * *":  `its hour is "25"`,
		"0 0 32 * *":  `its day of month is "32"`,
		"0 0 * foo *": `its month is "foo"`,
		"0 0 * * 1-9": `its day of week is "1-9"`,
		"@daily":      "needs five fields",

		"CRON_TZ=Europe/Berlin 0 4 * * *": "remove CRON_TZ=Europe/Berlin and convert the hours to UTC",
		"TZ=UTC 0 4 * * *":                "remove TZ=UTC",
		"0 4 * * * America/New_York":      "remove America/New_York",
		"0 4 * * * UTC":                   "remove UTC",
	} {
		if _, err := NextTime(expression, time.Now()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", expression, err, want)
		}
	}
}

func FuzzNextTime(f *testing.F) {
	for _, seed := range []string{"* * * * *", "0 0 L * *", "0 0 * * 1#5", "0 0 15W * *", "*/7 1-5/2 ? JAN MON", "0 0 29 2 1", "1,2,3 * 5-6 */11 *"} {
		f.Add(seed, int64(1_800_000_000))
	}
	f.Fuzz(func(t *testing.T, expression string, unix int64) {
		after := time.Unix(unix%4_000_000_000, 0)
		next, err := NextTime(expression, after)
		if err == nil && (!next.After(after) || next.Second() != 0) {
			t.Errorf("%q after %v: %v", expression, after, next)
		}
	})
}

// TestNextTimeIsLikeTheLibrary compares the search with the library's, which is slow for times far
// ahead.
func TestNextTimeIsLikeTheLibrary(t *testing.T) {
	after := time.Date(2026, 11, 23, 18, 20, 30, 0, time.UTC)
	for _, day := range []string{"*", "?", "29", "31", "L", "*/2", "*/28", "1W", "1,15"} {
		for _, weekday := range []string{"*", "0", "7", "*/2", "1-5", "5L", "SUN,MON#1"} {
			for _, month := range []string{"*", "*/11"} {
				expression := "5,40 18 " + day + " " + month + " " + weekday
				want, err := gronx.NextTickAfter(expression, after, false)
				if err != nil {
					continue
				}
				if got, err := NextTime(expression, after); err != nil || !got.Equal(want) {
					t.Errorf("%q: %v, %v, want %v", expression, got, err, want)
				}
			}
		}
	}
}

// TestNextTimeIsFast uses expressions for which a search day by day takes up to 18 s. Without such a
// search, the slowest takes about 0.1 s.
func TestNextTimeIsFast(t *testing.T) {
	many := func(text string) string { return strings.TrimSuffix(strings.Repeat(text+",", 40), ",") }
	began := time.Now()
	for _, expression := range []string{"0 0 * 2 " + many("0#6"), "0 0 */31 2 " + many("0#6"), "0 0 */31 2,11 " + many("1#5"), "0 0 " + many("31W") + " 2 *"} {
		if got, err := NextTime(expression, began); fault.KindOf(err) != fault.KindInvalid {
			t.Errorf("%q: %v, %v, want an error", expression, got, err)
		}
	}
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("the search took %s", d)
	}
}
