package api_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/workflow"
)

// lentEnvironment is an environment that jobs of stacks open.
const lentEnvironment = "/api/esc/environments/acme/app/prod"

// environmentLab is a [grantLab] with an environment, on which members have no permission.
type environmentLab struct{ *grantLab }

func newEnvironmentLab(l *lab) environmentLab {
	l.t.Helper()
	g := environmentLab{newGrantLab(l)}
	g.environment("prod")
	g.do("PATCH", "/api/orgs/acme", map[string]any{"setDefaultEnvironmentPermission": "none"}).want(200, nil)
	return g
}

// opens opens the environment and reads its definition, and fails the test unless the job may do so. The evaluator of the lab
// is missing, for which a permitted opening gets 503.
func (g environmentLab) opens(job string, may bool, says ...string) {
	g.t.Helper()
	open := g.send(call{Method: "POST", Path: lentEnvironment + "/open", Auth: job})
	read := g.send(call{Method: "GET", Path: lentEnvironment, Auth: job})
	if may {
		open.want(503, nil).says("workflow-esc")
		read.want(200, nil)
		return
	}
	for _, a := range []answer{open, read} {
		a.want(403, nil)
		for _, s := range says {
			a.says(s)
		}
	}
}

func (g environmentLab) grant(body map[string]any) (id string, readers []string) {
	g.t.Helper()
	var made struct {
		ID      string
		Readers []string
	}
	g.do("POST", lentEnvironment+"/grants", body).want(201, &made)
	return made.ID, made.Readers
}

// TestEnvironmentGrants gives, narrows and revokes a grant while jobs without a user run.
func TestEnvironmentGrants(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		g := newEnvironmentLab(l)
		web := g.create("web", "prod", "")
		job := g.jobOf(web, "update", g.robot, nil)
		g.opens(job, false, "this deployment may not open environment acme/app/prod: it does not exist, or no grant lets jobs of acme/web/prod open it. "+
			"An administrator of the environment can grant it with: workflow-server environment grant add acme/app/prod --to-stack acme/web/prod")
		exists := g.send(call{Method: "GET", Path: lentEnvironment, Auth: job}).want(403, nil)
		missing := g.send(call{Method: "GET", Path: strings.Replace(lentEnvironment, "prod", "none", 1), Auth: job}).want(403, nil)
		if strings.ReplaceAll(string(missing.Body), "app/none", "app/prod") != string(exists.Body) {
			t.Errorf("the answers reveal which environment exists:\n%s\n%s", missing.Body, exists.Body)
		}
		id, readers := g.grant(map[string]any{"stack": "acme/web/prod"})
		if !slices.Equal(readers, []string{"acme/web/prod"}) {
			t.Errorf("the grant covers %v", readers)
		}
		g.opens(job, true)
		if again, _ := g.grant(map[string]any{"stack": "web/prod"}); again != id {
			t.Errorf("a second grant to the same stack has the id %s", again)
		}
		// It changes nothing, and reads no definition with its secrets.
		g.send(call{Method: "GET", Path: lentEnvironment + "/decrypt", Auth: job}).want(403, nil)
		g.send(call{Method: "PATCH", Path: lentEnvironment, Body: "a: 1\n", Auth: job}).want(403, nil)
		g.send(call{Method: "POST", Path: lentEnvironment + "/grants", Body: map[string]any{"project": "web"}, Auth: job}).want(403, nil)
		g.send(call{Method: "POST", Path: lentEnvironment + "/clone", Body: map[string]any{"name": "copy"}, Auth: job}).want(403, nil)
		type of struct {
			OpenedBy, Opens []struct {
				ID, From string
				To       struct{ Stack string }
			}
		}
		var list of
		g.do("GET", lentEnvironment+"/grants", nil).want(200, &list)
		if len(list.OpenedBy) != 1 || list.OpenedBy[0].To.Stack != "acme/web/prod" || list.OpenedBy[0].ID != id {
			t.Errorf("opened by %+v", list.OpenedBy)
		}
		g.do("GET", web+"/grants", nil).want(200, &list)
		if len(list.Opens) != 1 || list.Opens[0].From != "acme/app/prod" {
			t.Errorf("opens %+v", list.Opens)
		}
		// What the environment imports needs grants, too.
		g.environment("base")
		g.environment("network")
		for _, name := range []string{"prod", "base"} {
			g.send(call{Method: "PATCH", Path: strings.Replace(lentEnvironment, "prod", name, 1), Body: "- app/network\n- app/base\n", Auth: "token " + g.admin}).want(200, nil)
		}
		imports := g.do("POST", lentEnvironment+"/grants", map[string]any{"stack": "web/prod", "previews": true}).want(201, nil)
		imports.says(`"ungranted":["acme/app/base","acme/app/network"]`)
		g.do("POST", "/api/esc/environments/acme/app/base/grants", map[string]any{"stack": "web/prod", "previews": true}).want(201, nil).says(`"ungranted":["acme/app/network"]`)
		g.send(call{Method: "GET", Path: "/api/esc/environments/acme/app/network", Auth: job}).want(403, nil)

		g.do("DELETE", lentEnvironment+"/grants/"+id, nil).want(204, nil)
		g.opens(job, false)
		g.do("DELETE", lentEnvironment+"/grants/"+id, nil).want(404, nil)
		for _, bad := range []map[string]any{
			{}, {"stack": "acme/web/prod", "project": "web"}, {"stack": "prod"}, {"project": "a/b"}, {"tag": map[string]any{"name": "pulumi:project", "value": "web"}},
		} {
			g.do("POST", lentEnvironment+"/grants", bad).want(400, nil)
		}
		g.do("POST", lentEnvironment+"/grants", map[string]any{"stack": "acme/web/none"}).want(404, nil)
		// A grant belongs to the environment, and not to its name.
		g.grant(map[string]any{"stack": "web/prod"})
		g.do("DELETE", lentEnvironment, nil).want(200, nil)
		g.environment("prod")
		g.opens(job, false)
		log := g.do("GET", "/api/orgs/acme/auditlogs", nil).want(200, nil)
		for _, action := range []string{"environment.grant-added", "environment.grant-changed", "environment.grant-removed"} {
			log.says(action)
		}
	})
}

// TestReaderWhoDeploys requests a deployment as a user who may read an environment, but not open it: its job learns which grant
// it lacks, as the job of a user without permissions does.
func TestReaderWhoDeploys(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		g := newEnvironmentLab(l)
		ann := g.person("ann", "acme", "member")
		for i, permission := range []string{"none", "read"} {
			g.do("PATCH", "/api/orgs/acme", map[string]any{"setDefaultEnvironmentPermission": permission}).want(200, nil)
			stack := g.create("web", fmt.Sprintf("s%d", i), ann)
			job := g.jobOf(stack, "update", ann, nil)
			g.send(call{Method: "POST", Path: lentEnvironment + "/open", Auth: job}).want(403, nil).
				says(fmt.Sprintf("this deployment may not open environment acme/app/prod: it does not exist, or ann, who requested the deployment, may not open it, and no grant lets jobs of acme/web/s%d open it", i))
			g.done()
		}
	})
}

// TestEnvironmentGrantsByWhatRuns checks which code and which operations grants cover.
func TestEnvironmentGrantsByWhatRuns(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		g := newEnvironmentLab(l)
		jobs := map[string]string{}
		commit := strings.Repeat("a", 40)
		for i, c := range []struct {
			name, operation string
			change          map[string]any
		}{
			{"update", "update", nil},
			{"drift", "detect-drift", nil},
			{"preview", "preview", nil},
			{"branch", "update", map[string]any{"branch": "refs/heads/feature"}},
			{"commit", "update", map[string]any{"commit": commit}},
			{"fork", "", nil},
			{"own-pull", "", nil},
		} {
			stack := g.create("web", fmt.Sprintf("s%d", i), "")
			if c.operation != "" {
				jobs[c.name] = g.jobOf(stack, c.operation, g.robot, c.change)
				continue
			}
			st := g.named("web", fmt.Sprintf("s%d", i))
			err := g.db.Write(t.Context(), st.Scope(), func(tx *store.Tx) error {
				_, err := g.service.CreateTriggered(t.Context(), tx, st, deployments.Trigger{
					Operation: workflow.OperationUpdate, Initiator: vcs.InitiatorPush,
					Checkout: store.VCSCheckout{CommitID: commit, Ref: "refs/pull/7/head", Branch: "feature", Pull: 7, Fork: c.name == "fork"},
				})
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			jobs[c.name] = g.running()
		}
		check := func(may ...string) {
			t.Helper()
			for name, job := range jobs {
				got := g.send(call{Method: "GET", Path: lentEnvironment, Auth: job}).Status
				if (got == 200) != slices.Contains(may, name) || got != 200 && got != 403 {
					t.Errorf("%s: status %d", name, got)
				}
			}
		}
		check()
		id, _ := g.grant(map[string]any{"project": "web"})
		check("update", "drift")
		g.opens(jobs["preview"], false, "covers only updates that run what the settings of the stack name", "environment grant add acme/app/prod --previews --to-stack acme/web/s2")
		g.opens(jobs["fork"], false, "no grant can cover it")
		if wider, _ := g.grant(map[string]any{"project": "web", "previews": true}); wider != id {
			t.Errorf("the changed grant has the id %s", wider)
		}
		check("update", "drift", "preview", "branch", "own-pull")
		g.do("DELETE", lentEnvironment+"/grants/"+id, nil).want(204, nil)
		check()
	})
}

// TestEnvironmentGrantsAndPlaces checks that no caller gets an environment by creating, renaming or tagging a stack, and that
// grants end with a transfer.
func TestEnvironmentGrantsAndPlaces(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		g := newEnvironmentLab(l)
		ann := g.person("ann", "acme", "member") // may read all stacks, and open no environment
		as := func(auth, method, path string, body any) answer {
			t.Helper()
			return g.send(call{Method: method, Path: path, Body: body, Auth: auth})
		}
		tag := map[string]any{"name": "tier", "value": "web"}
		early := g.create("web", "early", ann)
		g.grant(map[string]any{"project": "web"})
		g.grant(map[string]any{"tag": tag})
		g.opens(g.jobOf(early, "update", g.robot, nil), true) // the administrator has seen it
		created := g.create("web", "created", ann)
		excluded := g.jobOf(created, "update", g.robot, nil)
		g.opens(excluded, false, "no grant lets jobs of acme/web/created open it")
		moved := g.create("own", "moved", ann)
		as(ann, "POST", moved+"/rename", map[string]any{"newName": "moved", "newProject": "web"}).want(200, nil)
		g.opens(g.jobOf("/api/stacks/acme/web/moved", "update", g.robot, nil), false)
		tagged := g.create("own", "tagged", ann)
		job := g.jobOf(tagged, "update", g.robot, nil)
		as(ann, "POST", tagged+"/tags", tag).want(204, nil)
		g.opens(job, false)
		as(ann, "DELETE", tagged+"/tags/tier", nil).want(204, nil)
		as(job, "POST", tagged+"/tags", tag).want(204, nil) // a job may tag its own stack
		g.opens(job, false)
		as("", "PATCH", tagged+"/tags/tier", map[string]any{"value": "db"}).want(204, nil)
		as("", "PATCH", tagged+"/tags/tier", map[string]any{"value": "web"}).want(204, nil) // by the administrator
		g.opens(job, true)
		var list struct {
			Opens []struct{ Excluded bool }
		}
		g.do("GET", created+"/grants", nil).want(200, &list)
		if len(list.Opens) != 1 || !list.Opens[0].Excluded {
			t.Errorf("the excluded stack opens %+v", list.Opens)
		}
		as(job, "GET", tagged+"/grants", nil).want(200, nil).says(`"opens":[{`) // a job sees only what covers it
		as(excluded, "GET", created+"/grants", nil).want(200, nil).says(`"opens":[]`)

		// Those who may open the environment extend the grants, by each way to a permission.
		give := func(login string) string {
			auth := g.person(login, "acme", "member")
			g.do("POST", "/api/orgs/acme/teams/pulumi", map[string]any{"name": login + "s"}).want(201, nil)
			g.do("PATCH", "/api/orgs/acme/teams/"+login+"s", map[string]any{"memberAction": "add", "member": login}).want(204, nil)
			return auth
		}
		bob, eva := give("bob"), give("eva")
		for login, permission := range map[string]string{"bob": "open", "eva": "read"} {
			g.do("PATCH", "/api/orgs/acme/teams/"+login+"s", map[string]any{"addEnvironmentPermission": map[string]any{"projectName": "app", "envName": "prod", "permission": permission}}).want(204, nil)
		}
		g.opens(g.jobOf(g.create("web", "team", bob), "update", g.robot, nil), true)
		g.opens(g.jobOf(g.create("web", "reader", eva), "update", g.robot, nil), false)
		g.do("PATCH", "/api/orgs/acme", map[string]any{"setDefaultEnvironmentPermission": "open"}).want(200, nil)
		g.opens(g.jobOf(g.create("web", "default", ann), "update", g.robot, nil), true)
		g.do("PATCH", "/api/orgs/acme", map[string]any{"setDefaultEnvironmentPermission": "none"}).want(200, nil)

		// A transfer ends the grants to the stack.
		g.newOrganization("rival")
		g.administers("admin", "rival")
		gone := g.create("last", "gone", "")
		g.grant(map[string]any{"stack": "last/gone"})
		g.do("DELETE", gone+"/deployments/settings", nil).want(200, nil)
		g.do("POST", gone+"/transfer", map[string]any{"toOrg": "rival"}).want(204, nil)
		g.do("POST", "/api/stacks/rival/last/gone/transfer", map[string]any{"toOrg": "acme"}).want(204, nil)
		if body := string(g.do("GET", lentEnvironment+"/grants", nil).want(200, nil).Body); strings.Contains(body, "gone") {
			t.Errorf("after the transfer: %s", body)
		}
	})
}

// TestEnvironmentGrantsOfTwoOrganizations grants environments of the same name to stacks of the same name.
func TestEnvironmentGrantsOfTwoOrganizations(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		g := newEnvironmentLab(l)
		rival := g.newOrganization("rival")
		there := strings.Replace(lentEnvironment, "acme", "rival", 1)
		as := func(method, path string, body any) answer {
			t.Helper()
			return g.send(call{Method: method, Path: path, Body: body, Auth: rival})
		}
		as("POST", "/api/esc/environments/rival", map[string]any{"project": "app", "name": "prod"}).want(200, nil)
		as("POST", "/api/stacks/rival/web", map[string]any{"stackName": "prod"}).want(200, nil)
		job := g.jobOf(g.create("web", "prod", ""), "update", g.robot, nil)
		tag := map[string]any{"name": "tier", "value": "web"}
		g.do("POST", "/api/stacks/acme/web/prod/tags", tag).want(204, nil)
		for _, to := range []map[string]any{{"stack": "web/prod"}, {"project": "web"}, {"tag": tag}} {
			as("POST", there+"/grants", to).want(201, nil)
		}
		as("POST", there+"/grants", map[string]any{"stack": "acme/web/prod"}).want(404, nil)
		g.send(call{Method: "POST", Path: there + "/open", Auth: job}).want(404, nil)
		g.opens(job, false)
		id, _ := g.grant(map[string]any{"stack": "web/prod"})
		g.opens(job, true)
		g.send(call{Method: "POST", Path: there + "/open", Auth: job}).want(404, nil)
		as("GET", lentEnvironment+"/grants", nil).want(404, nil)
		as("POST", lentEnvironment+"/grants", map[string]any{"project": "web"}).want(404, nil)
		as("DELETE", lentEnvironment+"/grants/"+id, nil).want(404, nil)
		as("DELETE", there+"/grants/"+id, nil).want(404, nil)
		g.opens(job, true)
	})
}
