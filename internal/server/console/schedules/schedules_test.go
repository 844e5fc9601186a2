package schedules_test

import (
	"fmt"
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/consoletest"
)

const path = "/acme/-/schedules"

type m = map[string]any

type site struct {
	t *testing.T
	*consoletest.Server
	admin *consoletest.Browser
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := consoletest.New(t)
	return &site{t, s, s.SignIn()}
}

// stack creates a stack with deployment settings.
func (s *site) stack(project, name string) {
	s.t.Helper()
	s.API(http.MethodPost, "/api/stacks/acme/"+project, m{"stackName": name}, nil)
	s.API(http.MethodPost, "/api/stacks/acme/"+project+"/"+name+"/deployments/settings", m{}, nil)
}

// schedule creates a schedule of a stack and returns its id.
func (s *site) schedule(stack, cron, operation string) string {
	s.t.Helper()
	var made struct{ ID string }
	s.API(http.MethodPost, "/api/stacks/acme/"+stack+"/deployments/schedules", m{"scheduleCron": cron, "request": m{"operation": operation}}, &made)
	return made.ID
}

var tags = regexp.MustCompile(`(?s)^.*<main|<[^>]*>`)

// text returns the text of a page without its tags.
func (s *site) text(b *consoletest.Browser, path string) string {
	s.t.Helper()
	p := b.Get(path)
	if p.Status != http.StatusOK {
		s.t.Fatalf("GET %s: status %d: %s", path, p.Status, p.Body)
	}
	return html.UnescapeString(strings.Join(strings.Fields(tags.ReplaceAllString(p.Body, " ")), " "))
}

func TestList(t *testing.T) {
	s := newSite(t)
	if text := s.text(s.admin, path); !strings.Contains(text, "No schedule yet") {
		t.Errorf("an organization without schedules: %s", text)
	}
	long := strings.Repeat("s", 100)
	s.stack("web", long)
	s.stack("db", "prod")
	s.schedule("web/"+long, "0 0 1 1 *", "update")
	paused := s.schedule("db/prod", "* * * * *", "destroy")
	s.API(http.MethodPost, "/api/stacks/acme/db/prod/deployments/schedules/"+paused+"/pause", nil, nil)
	year := time.Now().UTC().Year()
	if text := s.text(s.admin, path+"?q=web"); !strings.Contains(text, fmt.Sprintf("next 3 runs %d-01-01 00:00:00 UTC %d-01-01 00:00:00 UTC %d-01-01 00:00:00 UTC", year+1, year+2, year+3)) {
		t.Errorf("the next runs are missing: %s", text)
	}
	const many = 60
	for i := range many {
		s.schedule("db/prod", fmt.Sprintf("%d 12 * * *", i%60), "preview")
	}
	first := s.admin.Get(path)
	next := html.UnescapeString(regexp.MustCompile(`/acme/-/schedules\?after=[^"]*`).FindString(first.Body))
	second := s.admin.Get(next)
	if n := strings.Count(first.Body, ">preview<") + strings.Count(second.Body, ">preview<"); n != many {
		t.Errorf("the pages show %d of %d schedules", n, many)
	}
	// The paused schedule is the last although it would be due next.
	if text := s.text(s.admin, next); !strings.HasSuffix(strings.TrimSpace(strings.Split(text, "First page")[0]), "paused never") || !strings.Contains(text, long) {
		t.Errorf("the last page: %s", text)
	}
	if p := s.admin.Get(path + "?after=0-x-y"); p.Status != http.StatusBadRequest {
		t.Errorf("a damaged position: status %d", p.Status)
	}
	for query, want := range map[string]string{"?q=WEB": long, "?kind=drift": "No schedule matches", "?q=%25": "No schedule matches", "?kind=schedule&q=b/prod": "db/prod"} {
		if text := s.text(s.admin, path+query); !strings.Contains(text, want) {
			t.Errorf("%s lacks %q: %s", query, want, text)
		}
	}
	s.API(http.MethodPost, "/api/stacks/acme/web/"+long+"/deployments/pause", nil, nil)
	if text := s.text(s.admin, path+"?q=web"); !strings.Contains(text, "the stack is paused") {
		t.Errorf("a paused stack: %s", text)
	}
	s.API(http.MethodPost, "/api/orgs/acme/deployments/pause", nil, nil)
	if text := s.text(s.admin, path+"?q=db"); !strings.Contains(text, "All deployments of the organization are paused") || !strings.Contains(text, "all deployments are paused") {
		t.Errorf("a paused organization: %s", text)
	}
	// A stack collaborator sees only the schedules of granted stacks.
	guest := s.SignInWith(s.AddUser("guest", "stack-collaborator"))
	if text := s.text(guest, path); !strings.Contains(text, "No schedule yet") {
		t.Errorf("a stack collaborator sees %s", text)
	}
	s.API(http.MethodPut, "/api/stacks/acme/web/"+long+"/collaborators/guest", m{"permission": 101}, nil)
	if text := s.text(guest, path); !strings.Contains(text, long) || strings.Contains(text, "db/prod") {
		t.Errorf("a stack collaborator sees %s", text)
	}
}

func TestCalendar(t *testing.T) {
	s := newSite(t)
	s.stack("web", "prod")
	s.stack("db", "prod")
	now := time.Now().UTC()
	// At another time than now, so that today has not passed it while the test runs.
	hour := (now.Hour() + 6) % 24
	s.schedule("web/prod", fmt.Sprintf("30 %d * * *", hour), "update")
	s.schedule("web/prod", fmt.Sprintf("*/10 %d * * *", hour), "refresh")
	s.schedule("db/prod", fmt.Sprintf("30 %d * * *", hour), "preview")
	paused := s.schedule("db/prod", "* * * * *", "destroy")
	s.API(http.MethodPost, "/api/stacks/acme/db/prod/deployments/schedules/"+paused+"/pause", nil, nil)
	text := s.text(s.admin, path+"?view=calendar")
	tomorrow := now.AddDate(0, 0, 1).Format("Monday, 2 January")
	_, text, _ = strings.Cut(text, tomorrow)
	text, _, _ = strings.Cut(text, now.AddDate(0, 0, 2).Format("Monday, 2 January"))
	for _, want := range []string{
		fmt.Sprintf("from %02d:00, 6 times web/prod refresh waits 1 time at the same time", hour),
		fmt.Sprintf("%02d:30 db/prod preview %02d:30 web/prod update waits at the same time as another schedule", hour, hour),
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the calendar lacks %q: %s", want, text)
		}
	}
	if strings.Contains(text, "destroy") {
		t.Errorf("the calendar shows a paused schedule: %s", text)
	}
	if text := s.text(s.admin, path+"?view=calendar&q=db"); strings.Contains(text, "web/prod") {
		t.Errorf("the filter is ignored: %s", text)
	}
	s.API(http.MethodPost, "/api/stacks/acme/db/prod/deployments/pause", nil, nil)
	if text := s.text(s.admin, path+"?view=calendar"); !strings.Contains(text, "preview waits the stack is paused") {
		t.Errorf("the calendar does not show the pause: %s", text)
	}
}

// TestBusyCalendar shows a calendar whose schedules are due as often as possible.
func TestBusyCalendar(t *testing.T) {
	s := newSite(t)
	for i := range 3 {
		name := fmt.Sprint("s", i)
		s.stack("web", name)
		for range 100 {
			s.schedule("web/"+name, "* * * * *", "preview")
		}
	}
	text := s.text(s.admin, path+"?view=calendar")
	if !strings.Contains(text, "Only the 200 schedules") || !strings.Contains(text, "and 150 more") || !strings.Contains(text, "1,440 times") {
		t.Errorf("the calendar: %s", text)
	}
}
