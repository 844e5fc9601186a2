package api_test

import (
	"fmt"
	"testing"
	"time"

	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/workflow"
)

type usageSummary struct {
	Summary []struct {
		Year, Resources, ResourceHours int
		Month, WeekNumber, Day, Hour   *int
	}
}

func TestUsage(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		const org = "/api/orgs/acme"
		var none usageSummary
		for _, path := range []string{"/resources/summary", "/deployments/summary"} {
			a := l.do("GET", org+path+"?granularity=daily&lookbackDays=30", nil).want(200, &none)
			if string(a.Body) != "{\"summary\":[]}\n" && string(a.Body) != `{"summary":[]}` {
				t.Errorf("%s without usage: %s", path, a.Body)
			}
		}
		l.do("GET", org+"/deployments/usagereport", nil).want(200, nil).says("[]")

		path := l.deployable("dev")
		l.publish("/api/stacks/acme/proj/dev")
		id := l.deploy(path, "update")
		_, jc := l.start("agent")
		l.end(jc, workflow.StatusSucceeded)
		err := l.db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			// The two resources exist for a day, and the deployment ran for an hour.
			if _, err := tx.Exec("UPDATE resource_changes SET changed_at = $1", tx.Now().Add(-24*time.Hour)); err != nil {
				return err
			}
			job, err := tx.JobOfDeployment(id)
			job.StartedAt, job.EndedAt = tx.Now().Add(-2*time.Hour), tx.Now().Add(-time.Hour)
			if err == nil {
				err = tx.SaveJob(job)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		get := func(path, auth string) (points, resources, sum int) {
			t.Helper()
			var s usageSummary
			l.send(call{Method: "GET", Path: org + path, Auth: auth}).want(200, &s)
			for _, p := range s.Summary {
				resources, sum = resources+p.Resources, sum+p.ResourceHours
			}
			return len(s.Summary), resources, sum
		}
		if _, n, sum := get("/resources/summary?granularity=hourly&lookbackDays=2", ""); n < 48 || sum < 48 || sum > 49 {
			t.Errorf("%d resource hours, %d resources in all hours", sum, n)
		}
		if points, _, sum := get(fmt.Sprintf("/resources/summary?granularity=yearly&lookbackDays=30&lookbackStart=%d", time.Now().Unix()), ""); points > 2 || sum != 48 {
			t.Errorf("%d resource hours in %d years, want 48", sum, points)
		}
		if _, n, sum := get("/deployments/summary?granularity=monthly&lookbackDays=2", ""); n != 1 || sum != 60 {
			t.Errorf("%d deployments ran for %d minutes, want 1 and 60", n, sum)
		}
		var records []struct{ OrgID, Timestamp, UsageRangeStart, UsageRangeEnd, Value, Count any }
		l.do("GET", org+"/deployments/usagereport?lookbackDays=1", nil).want(200, &records)
		if len(records) == 0 || records[0].Count != 1.0 {
			t.Errorf("records %+v", records)
		}

		// A member sees the usage of the stacks that the member may see. The usage of a removed stack
		// remains.
		l.do("PATCH", org, map[string]any{"setDefaultStackPermission": 0}).want(200, nil)
		ann := l.person("ann", "acme", "member")
		for _, path := range []string{"/resources/summary", "/deployments/summary"} {
			if points, _, _ := get(path+"?granularity=daily&lookbackDays=2", ann); points != 0 {
				t.Errorf("a member without permissions sees %s in %d points", path, points)
			}
		}
		l.do("DELETE", "/api/stacks/acme/proj/dev?force=true", nil).want(204, nil)
		if _, _, sum := get("/resources/summary?granularity=daily&lookbackDays=2", ""); sum < 47 {
			t.Errorf("%d resource hours after the stack was removed", sum)
		}
		for _, bad := range []string{
			"/resources/summary", "/resources/summary?granularity=daily", "/resources/summary?granularity=x&lookbackDays=1",
			"/deployments/summary?granularity=hourly&lookbackDays=3", "/deployments/summary?granularity=daily&lookbackStart=1e9",
			"/deployments/usagereport?lookbackDays=0", "/deployments/usagereport?lookbackDays=99999999999999999999",
		} {
			l.do("GET", org+bad, nil).want(400, nil)
		}
	})
}
