package usage_test

import (
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/storage/usage"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/workflow"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

// fixture adds an organization "o" and its stacks "s" and "hidden", and returns the start of the
// hour before five hours.
func fixture(t *testing.T, db *store.DB, rows func(tx *store.Tx, base time.Time) error) time.Time {
	t.Helper()
	var base time.Time
	err := db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		base = tx.Now().UTC().Truncate(time.Hour).Add(-5 * time.Hour)
		if err := tx.InsertOrganization(store.Organization{ID: "o", Name: "acme", CreatedAt: base}); err != nil {
			return err
		}
		for _, id := range []string{"s", "hidden"} {
			if err := tx.InsertStack(store.Stack{ID: id, OrgID: "o", Project: "p", Name: id, CreatedBy: "of " + id, CreatedAt: base}); err != nil {
				return err
			}
		}
		return rows(tx, base)
	})
	if err != nil {
		t.Fatal(err)
	}
	return base
}

var (
	all = store.Reach{All: []string{"o"}}
	// some selects only the stack "s".
	some = store.Reach{Granted: []string{"o"}, Creator: "of s"}
)

func hourly(from time.Time) usage.Query {
	start := from.Unix()
	return usage.Query{Granularity: usage.Hourly, Start: &start}
}

func TestResources(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		base := fixture(t, db, func(tx *store.Tx, base time.Time) error {
			for _, c := range []struct {
				stack  string
				after  time.Duration
				change int64
			}{
				{"s", -48 * time.Hour, 2},
				{"s", 30 * time.Minute, 10},
				{"hidden", time.Hour, 100},
				{"s", 2*time.Hour + 15*time.Minute, -4},
				{"deleted", 3 * time.Hour, 20},
				{"deleted", 3*time.Hour + 30*time.Minute, -20},
			} {
				if _, err := tx.Exec("INSERT INTO resource_changes (org_id, stack_id, changed_at, change) VALUES ('o', $1, $2, $3)",
					c.stack, base.Add(c.after), c.change); err != nil {
					return err
				}
			}
			return nil
		})
		service := usage.New(db)
		for _, tt := range []struct {
			reach store.Reach
			want  []int64
		}{
			{all, []int64{7, 112, 109, 118, 108, 108}},
			{some, []int64{7, 12, 9, 8, 8, 8}},
			{store.Reach{}, nil},
		} {
			points, err := service.Resources(t.Context(), "o", tt.reach, hourly(base))
			if err != nil {
				t.Fatal(err)
			}
			var got []int64
			for i, p := range points {
				got = append(got, p.Average())
				if i < 5 && p.Hours() != p.Average() {
					t.Errorf("hour %d: %d resource hours, an average of %d", i, p.Hours(), p.Average())
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("resources (-want +got):\n%s", diff)
			}
		}
		start := base.Add(5 * time.Hour).Unix()
		days := int64(3)
		points, err := service.Resources(t.Context(), "o", some, usage.Query{Granularity: usage.Yearly, Days: &days, Start: &start})
		if err != nil {
			t.Fatal(err)
		}
		hours := int64(0)
		for _, p := range points {
			hours += p.Hours()
		}
		if want := int64(2*48 + 7 + 12 + 9 + 8 + 8); hours != want || len(points) > 2 {
			t.Errorf("%d resource hours in %d years, want %d", hours, len(points), want)
		}
	})
}

// TestRecordedResources changes the number of resources of a stack, and removes the stack.
func TestRecordedResources(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		base := fixture(t, db, func(tx *store.Tx, _ time.Time) error {
			for _, n := range []int64{3, 3, 5} {
				st, err := tx.Stack("s")
				st.ResourceCount, st.StateBlob = n, "state"
				if err == nil {
					err = tx.UpdateStack(st)
				}
				if err != nil {
					return err
				}
			}
			return tx.CountState("state", 3, 8)
		})
		count := func() (n int64) {
			err := db.Read(t.Context(), func(tx *store.Tx) (err error) {
				n, err = tx.CountResources("o", all, base.Add(24*time.Hour))
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		if got := count(); got != 8 {
			t.Errorf("%d resources, want 8", got)
		}
		if err := db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error { return tx.DeleteStack("s", "ada") }); err != nil {
			t.Fatal(err)
		}
		if got := count(); got != 0 {
			t.Errorf("%d resources after the removal, want 0", got)
		}
	})
}

func TestDeployments(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		base := fixture(t, db, func(tx *store.Tx, base time.Time) error {
			for id, job := range map[string]struct {
				stack      string
				start, end time.Duration
			}{
				"before":  {"s", -3 * time.Hour, -2 * time.Hour},
				"into":    {"s", -30 * time.Minute, 10 * time.Minute},
				"within":  {"s", 20 * time.Minute, 50 * time.Minute},
				"across":  {"hidden", time.Hour + 50*time.Minute, 3*time.Hour + 5*time.Minute},
				"another": {"s", time.Hour + time.Minute, time.Hour + 2*time.Minute},
				"running": {"s", 4*time.Hour + 45*time.Minute, 0},
				"waiting": {"s", 0, 0},
			} {
				j := store.Job{ID: id, DeploymentID: id, OrgID: "o", StackID: job.stack, Operation: workflow.OperationUpdate, Status: workflow.StatusSucceeded}
				if id != "waiting" {
					j.StartedAt = base.Add(job.start)
				}
				if job.end != 0 {
					j.EndedAt = base.Add(job.end)
				}
				if err := tx.InsertDeployment(store.Deployment{ID: id, OrgID: "o", StackID: job.stack, Version: int64(len(id))*100 + int64(id[0])}); err != nil {
					return err
				}
				if err := tx.InsertJob(j); err != nil {
					return err
				}
			}
			return nil
		})
		for _, tt := range []struct {
			reach   store.Reach
			minutes []int64
			counts  []int64
		}{
			{all, []int64{40, 11, 60, 5, 15}, []int64{1, 2, 0, 0, 1}},
			{some, []int64{40, 1, 0, 0, 15}, []int64{1, 1, 0, 0, 1}},
		} {
			points, err := usage.New(db).Deployments(t.Context(), "o", tt.reach, hourly(base))
			if err != nil {
				t.Fatal(err)
			}
			var minutes, counts []int64
			for _, p := range points[:5] {
				minutes, counts = append(minutes, p.Minutes()), append(counts, p.Count)
			}
			if diff := cmp.Diff(tt.minutes, minutes); diff != "" {
				t.Errorf("minutes (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.counts, counts); diff != "" {
				t.Errorf("deployments (-want +got):\n%s", diff)
			}
		}
		// A period that ends while the deployment "within" runs.
		days, end := int64(1), base.Add(30*time.Minute).Unix()
		points, err := usage.New(db).Deployments(t.Context(), "o", all, usage.Query{Granularity: usage.Hourly, Days: &days, Start: &end})
		if err != nil {
			t.Fatal(err)
		}
		if last := points[len(points)-1]; last.Minutes() != 20 || last.Count != 1 {
			t.Errorf("in half an hour, %d deployments ran for %d minutes, want 1 and 20", last.Count, last.Minutes())
		}
	})
}

func TestQueries(t *testing.T) {
	service := usage.New(storetest.SQLite(t))
	now := time.Now()
	number := func(n int64) *int64 { return &n }
	ago := func(d time.Duration) *int64 { return number(now.Add(-d).Unix()) }
	const day = 24 * time.Hour
	for name, tt := range map[string]struct {
		query usage.Query
		valid bool
	}{
		"days":                       {usage.Query{Granularity: usage.Daily, Days: number(366)}, true},
		"start":                      {usage.Query{Granularity: usage.Weekly, Start: ago(365 * day)}, true},
		"both":                       {usage.Query{Granularity: usage.Monthly, Days: number(30), Start: ago(day)}, true},
		"two days of hours":          {usage.Query{Granularity: usage.Hourly, Days: number(2)}, true},
		"two earlier days of hours":  {usage.Query{Granularity: usage.Hourly, Days: number(2), Start: ago(90 * day)}, true},
		"neither":                    {usage.Query{Granularity: usage.Daily}, false},
		"no granularity":             {usage.Query{Days: number(1)}, false},
		"an unknown granularity":     {usage.Query{Granularity: "minutely", Days: number(1)}, false},
		"no days":                    {usage.Query{Granularity: usage.Daily, Days: number(0)}, false},
		"negative days":              {usage.Query{Granularity: usage.Daily, Days: number(-1)}, false},
		"too many days":              {usage.Query{Granularity: usage.Daily, Days: number(367)}, false},
		"a start in the future":      {usage.Query{Granularity: usage.Daily, Start: ago(-time.Hour)}, false},
		"a start long ago":           {usage.Query{Granularity: usage.Daily, Start: ago(400 * day)}, false},
		"a start of zero":            {usage.Query{Granularity: usage.Daily, Start: number(0)}, false},
		"a start in milliseconds":    {usage.Query{Granularity: usage.Daily, Start: number(now.UnixMilli())}, false},
		"a huge start":               {usage.Query{Granularity: usage.Daily, Start: number(1<<63 - 1)}, false},
		"three days of hours":        {usage.Query{Granularity: usage.Hourly, Days: number(3)}, false},
		"hours since three days ago": {usage.Query{Granularity: usage.Hourly, Start: ago(3 * day)}, false},
	} {
		_, err := service.Resources(t.Context(), "o", all, tt.query)
		if tt.valid && err != nil || !tt.valid && fault.KindOf(err) != fault.KindInvalid {
			t.Errorf("%s: %v, want valid: %v", name, err, tt.valid)
		}
	}
}

func TestWeek(t *testing.T) {
	for date, want := range map[string]int{
		"2026-01-01": 0, "2026-01-03": 0, "2026-01-04": 1, "2023-01-01": 1, "2028-01-01": 0, "2028-12-31": 53, "2026-12-31": 52,
	} {
		day, err := time.Parse(time.DateOnly, date)
		if err != nil {
			t.Fatal(err)
		}
		if got := usage.Week(day); got != want {
			t.Errorf("%s is in week %d, want %d", date, got, want)
		}
	}
}
