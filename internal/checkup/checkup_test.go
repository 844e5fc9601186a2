package checkup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/reach"
)

func result(r Result) func(context.Context) Result {
	return func(context.Context) Result { return r }
}

func statuses(report Report) string {
	var all []string
	for _, r := range report.Checks {
		all = append(all, r.Name+" "+string(r.Status))
	}
	return strings.Join(all, ", ")
}

func TestPlan(t *testing.T) {
	var done []string
	p := Plan{Version: "v1", Done: func(r Result) { done = append(done, r.Name) }, Checks: []Check{
		{Name: "a", Title: "first", Run: result(Fail("no", "do"))},
		{Name: "b", Needs: []string{"a"}, Run: result(OK("yes"))},
		{Name: "c", After: []string{"a", "unknown"}, Run: result(Warn("hm", "do"))},
		{Name: "d", Needs: []string{"c"}, Run: result(OK("yes"))},
		{Name: "e", Needs: []string{"b"}, Run: result(OK("yes"))},
	}}
	report := p.Run(t.Context())
	if got, want := statuses(report), "a fail, b skip, c warn, d ok, e skip"; got != want || report.OK || report.Version != "v1" {
		t.Errorf("got %s (%t), want %s", got, report.OK, want)
	}
	if !slices.Equal(done, []string{"a", "b", "c", "d", "e"}) {
		t.Errorf("the results were reported in the order %v", done)
	}
	if r := report.Checks[1]; r.Found != "not checked, because of: first" {
		t.Errorf("the skipped check says %q", r.Found)
	}
	if got, want := Summary(report), "1 failed, 1 to review, 1 ok, 2 skipped"; got != want {
		t.Errorf("the summary is %q, want %q", got, want)
	}
	p.Only = []string{"d"}
	if got, want := statuses(p.Run(t.Context())), "c warn, d ok"; got != want {
		t.Errorf("only d: %s, want %s", got, want)
	}
}

func TestPlanIsStopped(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	report := Plan{Checks: []Check{
		{Name: "a", Run: func(ctx context.Context) Result {
			cancel()
			<-ctx.Done()
			return Fail("stopped", "again")
		}},
		{Name: "b", Needs: nil, After: []string{"a"}, Run: result(OK("yes"))},
	}}.Run(ctx)
	if got, want := statuses(report), "a fail, b skip"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestCheckThatTakesTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		report := Plan{Limit: time.Minute, Checks: []Check{
			{Name: "a", Limit: time.Hour, Run: func(ctx context.Context) Result {
				<-ctx.Done()
				return Fail(ctx.Err().Error(), "")
			}},
			{Name: "b", Run: func(ctx context.Context) Result {
				<-ctx.Done()
				return Fail("late", "try later")
			}},
		}}.Run(t.Context())
		if time.Since(began) != time.Hour || !strings.Contains(report.Checks[0].Advice, "longer than 1h0m0s") || report.Checks[1].Advice != "try later" {
			t.Errorf("after %s: %+v", time.Since(began), report.Checks)
		}
	})
}

func TestPrint(t *testing.T) {
	var b bytes.Buffer
	hostile := Result{Status: StatusFail, Found: "a\x1b[2Jb\nc", Details: []string{"d\re"}, Advice: "\u009bf"}
	report := Plan{Checks: []Check{{Title: "x", Run: result(hostile)}}, Done: func(r Result) { Print(&b, r, true) }}.Run(t.Context())
	if text := must.Get(json.Marshal(report))(t); bytes.ContainsRune(text, '\u009b') || bytes.Contains(text, []byte(`\u001b`)) {
		t.Errorf("the report is %s", text)
	}
	if want := "\x1b[31;1mfail\x1b[0m  x                  ab c\n                         d e\n                         -> f\n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}

func TestTLS(t *testing.T) {
	now := time.Now()
	of := func(validity, left time.Duration) *reach.Trace {
		return &reach.Trace{Certificates: []reach.Certificate{{Subject: "CN=s", NotBefore: now.Add(left - validity), NotAfter: now.Add(left)}}}
	}
	const day = 24 * time.Hour
	for name, tt := range map[string]struct {
		trace *reach.Trace
		want  Status
	}{
		"a year":                      {of(365*day, 100*day), StatusOK},
		"a year, near its end":        {of(365*day, 13*day), StatusWarn},
		"six days":                    {of(6*day, 2*day), StatusOK},
		"six days, not renewed":       {of(6*day, day), StatusWarn},
		"an untrusted certificate":    {&reach.Trace{Failed: reach.StageTLS, Problem: "no", Advice: "do"}, StatusFail},
		"a failure at an early stage": {&reach.Trace{Failed: reach.StageDNS, Problem: "no", Advice: "do"}, StatusFail},
	} {
		if r := TLS(tt.trace); r.Status != tt.want || (r.Status != StatusOK) != (r.Advice != "") {
			t.Errorf("%s: %+v, want %s", name, r, tt.want)
		}
	}
}

func TestSkew(t *testing.T) {
	for skew, want := range map[time.Duration]Status{0: StatusOK, -time.Second: StatusOK, 10 * time.Second: StatusOK, -time.Minute: StatusWarn, 6 * time.Minute: StatusFail} {
		if r := Skew(skew, "the other's"); r.Status != want {
			t.Errorf("%s: %+v, want %s", skew, r, want)
		}
	}
}

func TestSpace(t *testing.T) {
	const gib = 1 << 30
	for name, tt := range map[string]struct {
		size, free int64
		err        error
		want       Status
	}{
		"enough": {100 * gib, 50 * gib, nil, StatusOK}, "little": {100 * gib, gib, nil, StatusWarn}, "too little": {100 * gib, 99, nil, StatusFail},
		"no size": {0, 0, nil, StatusSkip}, "no disk": {0, 0, errors.New("gone"), StatusSkip},
	} {
		d := Disks{Of: func(string) (int64, int64, error) { return tt.size, tt.free, tt.err }, Least: 100}
		if r := d.Space("/d", "data", "make room"); r.Status != tt.want {
			t.Errorf("%s: %+v, want %s", name, r, tt.want)
		}
	}
}
