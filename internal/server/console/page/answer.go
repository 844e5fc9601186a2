package page

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/a-h/templ"

	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/console/assets"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
)

// Answer is the response to a form.
type Answer struct {
	status  int
	path    string
	page    view.Page
	leave   string
	formTo  string
	cookies []*http.Cookie
	done    view.Done
	data    any
}

// See answers with a redirect to a page.
func See(path string) Answer { return Answer{status: http.StatusSeeOther, path: path} }

// Again answers with the form once more, for a form with errors.
func Again(p view.Page) Answer { return Answer{status: http.StatusUnprocessableEntity, page: p} }

// Correctable returns the message of an error that the visitor can correct, as a sentence. Other
// errors become error pages.
func Correctable(err error) (message string, ok bool) {
	if err == nil {
		return "", false
	}
	status, _ := web.Classify(err)
	if !slices.Contains([]int{http.StatusBadRequest, http.StatusConflict, http.StatusNotFound, http.StatusForbidden}, status) {
		return "", false
	}
	return Sentence(err), true
}

// Sentence returns the message of an error for visitors, as a sentence. It does not change a name at the beginning, such
// as a login, an address or a key.
func Sentence(err error) string {
	failure, _ := errors.AsType[*fault.Error](err)
	named := failure != nil && failure.Named
	status, text := web.Classify(err)
	text = cmp.Or(text, http.StatusText(status))
	begin, _, _ := strings.Cut(text, " ")
	if !named && !strings.ContainsFunc(strings.TrimRight(begin, ",:;."), func(r rune) bool { return !unicode.IsLetter(r) && r != '-' && r != '\'' }) {
		first, size := utf8.DecodeRuneInString(text)
		text = string(unicode.ToUpper(first)) + text[size:]
	}
	if !strings.HasSuffix(text, ".") {
		text += "."
	}
	return text
}

// Changed answers with a redirect to a page after a change, or with again and the problem of an
// error that the visitor can correct.
func Changed(v *Visit, err error, path string, again func(v *Visit, problem string) (view.Page, error)) (Answer, error) {
	if message, ok := Correctable(err); ok {
		shown, err := again(v, message)
		return Again(shown), err
	}
	return See(path), err
}

// Failed answers with a page that says why the request failed.
func Failed(status int, p view.Page) Answer { return Answer{status: status, page: p} }

// Suggested is the number of stacks that a field suggests.
const Suggested = 500

// Once answers with a page that is not reachable by a link, such as a new secret.
func Once(p view.Page) Answer { return Answer{status: http.StatusOK, page: p} }

// Data answers with JSON, to a script that updates the page itself; see [Visit.ByScript].
func Data(value any) Answer { return Answer{status: http.StatusOK, data: value} }

// ByScript reports whether the script of a page sends a form, and so expects JSON.
func (v *Visit) ByScript() bool { return wantsJSON(v.R) }

// Part renders a part of a page for [Data].
func (v *Visit) Part(c templ.Component) (string, error) {
	var buf bytes.Buffer
	if err := c.Render(view.InZone(v.Context(), v.chosenZone()), &buf); err != nil {
		return "", fmt.Errorf("rendering a part of a page: %w", err)
	}
	return string(view.VisibleControls(buf.Bytes())), nil
}

// Leave answers with a page that sends the browser to a URL outside the site, without a Referer. A
// redirect does not work, because Chromium applies form-action to it.
func Leave(p view.Page, target string) Answer {
	return Answer{status: http.StatusOK, page: p, leave: target}
}

// FormTo lets a form of the answer's page be sent to the site of an address.
func (a Answer) FormTo(address string) Answer {
	a.formTo = address
	return a
}

// Cookie adds a cookie to the answer.
func (a Answer) Cookie(c *http.Cookie) Answer {
	a.cookies = append(a.cookies, c)
	return a
}

func (s *Site) answer(w http.ResponseWriter, v *Visit, a Answer) error {
	for _, c := range a.cookies {
		http.SetCookie(w, c)
	}
	if a.data != nil {
		s.keepDone(w, v, a.done)
		return web.WriteJSON(w, v.R, a.status, a.data)
	}
	if a.status == http.StatusSeeOther {
		s.keepDone(w, v, a.done)
		http.Redirect(w, v.R, a.path, http.StatusSeeOther)
		return nil
	}
	if a.leave != "" {
		w.Header().Set("Refresh", "0; url="+a.leave)
		w.Header().Set("Referrer-Policy", "no-referrer")
	}
	if u, err := url.Parse(a.formTo); err == nil && u.Host != "" {
		w.Header().Set("Content-Security-Policy", strings.Replace(contentPolicy, "form-action 'self'", "form-action 'self' "+u.Scheme+"://"+u.Host, 1))
	}
	return s.render(w, v, a.status, a.page)
}

// render writes a page.
func (s *Site) render(w http.ResponseWriter, v *Visit, status int, p view.Page) error {
	var buf bytes.Buffer
	shell, err := s.shell(v)
	if err != nil {
		return err
	}
	shell.Done = s.takeDone(w, v)
	if v.SignedIn() {
		w.Header().Set("Speculation-Rules", strconv.Quote(assets.PrefetchRules()))
	}
	if err := view.Frame(shell, p).Render(view.InZone(v.Context(), v.chosenZone()), &buf); err != nil {
		return fmt.Errorf("rendering a page: %w", err)
	}
	s.write(w, v.R, status, view.VisibleControls(buf.Bytes()))
	return nil
}

func (s *Site) shell(v *Visit) (view.Shell, error) {
	shell := view.Shell{
		Assets: assets.Path(), User: v.Who.User.Login, Name: cmp.Or(v.Who.User.Name, v.Who.User.Login), SiteAdmin: v.Who.User.SiteAdmin,
		Insecure: !s.Secure(),
	}
	if v.Who.User.SiteAdmin {
		shell.Plain = s.opts.Plain
	}
	org := v.shownOrg()
	shell.Org = org.Name
	shell.Member, shell.Admin = org.ID != "" && v.Who.CanReadOrg(org.ID), org.ID != "" && v.Who.CanAdminOrg(org.ID)
	for _, o := range v.orgs {
		shell.Orgs = append(shell.Orgs, view.OrgLink{Name: o.Name, Member: v.Who.CanReadOrg(o.ID)})
	}
	if c, err := v.R.Cookie(ThemeCookie); err == nil && (c.Value == "light" || c.Value == "dark") {
		shell.Theme = c.Value
	}
	if u := v.Who.User; u.ID != "" {
		shell.Density = u.Density
		if u.Scheme != "" {
			shell.Theme = strings.TrimSuffix(u.Scheme, "system")
		}
		if v.chosenZone() != nil {
			shell.Zone = u.Zone
		}
	}
	if c, err := v.R.Cookie(KeysCookie); err == nil && c.Value == "off" {
		shell.NoKeys = true
	}
	if org.ID == "" {
		return shell, nil
	}
	var err error
	if shell.Starred, err = s.opts.Starred(v.Context(), v.Who, org); err != nil {
		return shell, err
	}
	if shell.Numbers, err = s.numbers(v); err != nil {
		return shell, err
	}
	shell.Restored, err = s.opts.Restored(v.Context(), org.ID)
	return shell, err
}

// shownOrg returns the organization of the navigation, or the zero value.
func (v *Visit) shownOrg() store.Organization {
	if v.Org.Name == "" && len(v.orgs) > 0 {
		return v.preferred()
	}
	return v.Org
}

// numbers are the numbers of the navigation.
func (s *Site) numbers(v *Visit) (view.Numbers, error) {
	org := v.shownOrg()
	if org.ID == "" {
		return view.Numbers{}, nil
	}
	return s.opts.Numbers(v.Context(), v.Who, org)
}

// secretInput finds the names of inputs for secrets, and the values of variables and definitions of environments, which can be
// or contain secrets.
var secretInput = regexp.MustCompile(`secret|token|pass|key|^value$|^definition$`)

// kept returns the values of a form in the order of their names, or nothing if one of them can be a secret.
func kept(form url.Values) []view.Option {
	var out []view.Option
	for _, name := range slices.Sorted(maps.Keys(form)) {
		for _, value := range form[name] {
			if value != "" && value != "on" && secretInput.MatchString(name) { // "on" is that of a box
				return nil
			}
			out = append(out, view.Option{Value: name, Text: value})
		}
	}
	return out
}

func signInLink(v *Visit, wanted bool) string {
	if !wanted {
		return ""
	}
	// After a form, the visitor returns to the page with the form.
	if from, err := url.Parse(v.R.Referer()); err == nil && from.Path != "" && from.Host == v.R.Host {
		return LoginPath(SafeNext(from.RequestURI()))
	}
	return LoginPath("/")
}

// The names of the cookies that hold preferences.
const (
	ThemeCookie = "theme"
	KeysCookie  = "keys"
)

// Preference returns a cookie that keeps a preference for a year.
func (s *Site) Preference(name, value string) *http.Cookie {
	return &http.Cookie{Name: name, Value: value, Path: "/", MaxAge: 365 * 24 * 3600, HttpOnly: true, Secure: s.Secure(), SameSite: http.SameSiteLaxMode} //nolint:gosec // without https, Secure cookies are dropped
}

// SessionCookie returns the cookie of a session; "" removes it.
func (s *Site) SessionCookie(value string, expires time.Time) *http.Cookie {
	return s.Secret(sessionCookie, value, expires)
}

// Secret returns a cookie that scripts cannot read; the value "" removes it.
func (s *Site) Secret(name, value string, expires time.Time) *http.Cookie {
	c := &http.Cookie{Name: s.cookieName(name), Value: value, Path: "/", Expires: expires, HttpOnly: true, Secure: s.Secure(), SameSite: http.SameSiteLaxMode} //nolint:gosec // without https, Secure cookies are dropped
	if value == "" {
		c.MaxAge = -1
	}
	return c
}

// SecretOf returns the value of a cookie that [Site.Secret] has made, or "".
func (s *Site) SecretOf(v *Visit, name string) string {
	for _, c := range v.R.CookiesNamed(s.cookieName(name)) {
		return c.Value
	}
	return ""
}

// Back returns the page of this site from which a form was sent, or other.
func Back(v *Visit, other string) string {
	from, err := url.Parse(v.R.Referer())
	if err != nil || from.Host != v.R.Host || from.Path == "" {
		return other
	}
	return SafeNext(from.RequestURI())
}

// instead is the error of a page that gives another answer.
type instead struct{ answer Answer }

// Error implements error.
func (i instead) Error() string { return "see " + i.answer.path }

// Instead returns an error with which a page gives another answer than itself.
func Instead(a Answer) error { return instead{a} }

// GoTo returns an error with which a page sends the visitor to another page.
func GoTo(path string) error { return Instead(See(path)) }
