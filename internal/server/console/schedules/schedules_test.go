package schedules_test

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/server/console/page"
)

const path = "/acme/-/activity/calendar"

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
	return plain(p.Body)
}

func plain(body string) string {
	return html.UnescapeString(strings.Join(strings.Fields(tags.ReplaceAllString(body, " ")), " "))
}

// row returns the text of an hour of the calendar.
func (s *site) row(b *consoletest.Browser, path string, hour int) string {
	s.t.Helper()
	m := regexp.MustCompile(fmt.Sprintf(`(?s)<th scope="row">%02d:00</th>.*?</tr>`, hour)).FindString(b.Get(path).Body)
	return plain("<main>" + m)
}

func TestCalendar(t *testing.T) {
	s := newSite(t)
	if text := s.text(s.admin, path); !strings.Contains(text, "No schedule yet") {
		t.Errorf("an organization without schedules: %s", text)
	}
	s.stack("web", "prod")
	s.stack("db", "prod")
	hour := (time.Now().UTC().Hour() + 6) % 24 // so that today has not passed it while the test runs
	s.schedule("web/prod", fmt.Sprintf("30 %d * * *", hour), "update")
	s.schedule("web/prod", fmt.Sprintf("*/10 %d * * *", hour), "refresh")
	s.schedule("db/prod", fmt.Sprintf("40 %d * * *", hour), "preview")
	paused := s.schedule("db/prod", "* * * * *", "destroy")
	s.API(http.MethodPost, "/api/stacks/acme/db/prod/deployments/schedules/"+paused+"/pause", nil, nil)
	want := fmt.Sprintf("%02d:00 ×6 waits: at the same time as another schedule of the stack prod %02[1]d:30 waits: at the same time as another schedule of the stack prod %02[1]d:40 prod", hour)
	if row := s.row(s.admin, path, hour); strings.Count(row, want) < 6 {
		t.Errorf("the hour shows %s, want each day %s", row, want)
	}
	text := s.text(s.admin, path)
	if strings.Contains(text, "destroy") || strings.Count(text, "03:00")+strings.Count(text, "04:00") > 4 && hour != 3 && hour != 4 {
		t.Errorf("the calendar shows a paused schedule or an hour without one: %s", text)
	}
	if n := strings.Count(s.admin.Get(path).Body, `class="go"`); n != 20 {
		t.Errorf("the page shows %d next times, want 20", n)
	}
	for query, want := range map[string]string{"?q=DB": "Next 20", "?q=nemo": "No schedule found", "?kind=drift": "No schedule found", "?kind=schedule&q=db/p": "db/ prod"} {
		if text := s.text(s.admin, path+query); !strings.Contains(text, want) || strings.Contains(text, "web/") {
			t.Errorf("%s lacks %q or shows another stack: %s", query, want, text)
		}
	}
	s.API(http.MethodPost, "/api/stacks/acme/db/prod/deployments/pause", nil, nil)
	if text := s.text(s.admin, path); !strings.Contains(text, "preview waits: the stack is paused") {
		t.Errorf("the calendar does not show the pause: %s", text)
	}
	s.API(http.MethodPost, "/api/orgs/acme/deployments/pause", nil, nil)
	if text := s.text(s.admin, path); !strings.Contains(text, "All deployments of the organization are paused") || !strings.Contains(text, "waits: all deployments are paused") {
		t.Errorf("a paused organization: %s", text)
	}
	// A stack collaborator sees only the schedules of granted stacks.
	guest := s.SignInWith(s.AddUser("guest", "stack-collaborator"))
	if text := s.text(guest, path); !strings.Contains(text, "No schedule yet") {
		t.Errorf("a stack collaborator sees %s", text)
	}
	s.API(http.MethodPut, "/api/stacks/acme/web/prod/collaborators/guest", m{"permission": 101}, nil)
	if text := s.text(guest, path); !strings.Contains(text, "web/") || strings.Contains(text, "db/") {
		t.Errorf("a stack collaborator sees %s", text)
	}
	for from, to := range map[string]string{"/acme/-/schedules?view=calendar": path, "/acme/-/schedules?q=a+b": path + "?q=a+b"} {
		if got := s.admin.Get(from).Location(); got != to {
			t.Errorf("%s is now at %q, want %q", from, got, to)
		}
	}
}

// TestZone shows times in zones, of which one is no number of hours away from UTC.
func TestZone(t *testing.T) {
	s := newSite(t)
	s.stack("web", "prod")
	s.schedule("web/prod", "*/15 1 * * *", "update")
	for zone, want := range map[string]map[int]string{
		"Asia/Kathmandu":   {6: "06:45", 7: "07:00 ×3"}, // 05:45 east of UTC
		"Pacific/Honolulu": {15: "15:00 ×4"},
		"nowhere":          {1: "01:00 ×4"},
	} {
		at, _ := url.Parse(s.URL)
		s.admin.SetCookies(at, []*http.Cookie{{Name: page.ZoneCookie, Value: zone}})
		for hour, text := range want {
			if row := s.row(s.admin, path, hour); strings.Count(row, text+" prod") < 6 {
				t.Errorf("%s: %02d:00 shows %s, want each day %s", zone, hour, row, text)
			}
		}
		if n := strings.Count(s.admin.Get(path).Body, `<th scope="row">`); n != len(want) {
			t.Errorf("%s: the calendar has %d hours, want %d", zone, n, len(want))
		}
	}
}

// TestBusyCalendar shows a calendar whose schedules are due as often as possible.
func TestBusyCalendar(t *testing.T) {
	s := newSite(t)
	for i := range 3 {
		name := fmt.Sprint("s", i)
		s.stack("web", name)
		for range 70 {
			s.schedule("web/"+name, "* * * * *", "preview")
		}
	}
	text := s.text(s.admin, path)
	if !strings.Contains(text, "Only the 200 schedules") || !strings.Contains(text, "and 194 more") || !strings.Contains(text, "×60") {
		t.Errorf("the calendar: %s", text)
	}
}
