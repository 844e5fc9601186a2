package consoletest

import (
	"crypto/sha256"
	"encoding/hex"
	"html"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"

	"workflowagent/internal/dev/must"
)

// AgentText is the text with which a [Browser] describes itself.
const AgentText = "consoletest/1.0"

// Browser keeps cookies like a browser, including secure ones for loopback addresses. It does not
// follow redirects.
type Browser struct {
	s      *Server
	client *http.Client
	mu     sync.Mutex
	jar    map[string]*http.Cookie
}

// Page is a response.
type Page struct {
	Status int
	Header http.Header
	Body   string
	// Cookies are the cookies that the response set.
	Cookies []*http.Cookie
}

// Contains reports whether the body contains all texts.
func (p Page) Contains(texts ...string) bool {
	for _, text := range texts {
		if !strings.Contains(p.Body, text) {
			return false
		}
	}
	return true
}

// htmlTags matches the tags of a page.
var htmlTags = regexp.MustCompile(`<[^>]*>`)

// Text returns the text of a page, from its main part on if it has one, without tags and with single spaces.
func (p Page) Text() string {
	body := p.Body
	if at := strings.LastIndex(body, "<main"); at >= 0 {
		body = body[at:]
	}
	return strings.Join(strings.Fields(html.UnescapeString(htmlTags.ReplaceAllString(body, " "))), " ")
}

// Location returns the target of a redirect, or "".
func (p Page) Location() string { return p.Header.Get("Location") }

// Browser returns a browser that is not signed in.
func (s *Server) Browser() *Browser {
	b := &Browser{s: s, jar: map[string]*http.Cookie{}}
	b.client = &http.Client{
		Jar:           b,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return b
}

// SignIn returns a browser that is signed in as the administrator.
func (s *Server) SignIn() *Browser {
	s.t.Helper()
	return s.SignInWith(s.Token)
}

// SignInWith returns a browser that is signed in with an access token.
func (s *Server) SignInWith(token string) *Browser {
	s.t.Helper()
	b := s.Browser()
	if p := b.Post("/-/login", url.Values{"token": {token}}); p.Status != http.StatusSeeOther {
		s.t.Fatalf("signing in: status %d: %s", p.Status, p.Body)
	}
	return b
}

// Get requests a page.
func (b *Browser) Get(path string) Page {
	b.s.t.Helper()
	return b.Do(b.Request(http.MethodGet, path, nil))
}

// Post sends a form from a page of the same site.
func (b *Browser) Post(path string, form url.Values) Page {
	b.s.t.Helper()
	return b.Do(b.Request(http.MethodPost, path, form))
}

// SeenInvitation is what a form of the page about an invitation says, whose link is given: which one the visitor has seen.
func SeenInvitation(link string) (field, value string) {
	_, secret, _ := strings.Cut(link, "?key=")
	sum := sha256.Sum256([]byte(secret))
	return "invitation", hex.EncodeToString(sum[:])
}

// Request returns a request as a page of the same site would send it, which the caller can change
// before [Browser.Do].
func (b *Browser) Request(method, path string, form url.Values) *http.Request {
	b.s.t.Helper()
	target := path
	if strings.HasPrefix(path, "/") {
		target = b.s.URL + path
	}
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	req := must.Get(http.NewRequestWithContext(b.s.t.Context(), method, target, body))(b.s.t)
	req.Header.Set("User-Agent", AgentText)
	req.Header.Set("Accept", "text/html")
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Origin", b.s.URL)
	}
	return req
}

// Do sends a request.
func (b *Browser) Do(req *http.Request) Page {
	b.s.t.Helper()
	res, err := b.client.Do(req)
	must.OK(b.s.t, err)
	body, err := io.ReadAll(res.Body)
	res.Body.Close()
	if err != nil {
		b.s.t.Fatalf("%s %s: %v", req.Method, req.URL, err)
	}
	if strings.HasPrefix(res.Header.Get("Content-Type"), "text/html") {
		if joined := joinedWords.Find(longNames.ReplaceAll(body, []byte("$1$2"))); joined != nil {
			b.s.t.Errorf("%s %s: a space is missing in %s", req.Method, req.URL, joined)
		}
		seen := map[string]bool{}
		for _, id := range ids.FindAllSubmatch(body, -1) {
			if seen[string(id[1])] {
				b.s.t.Errorf("%s %s: two elements have the id %s, so that labels and links find the wrong one", req.Method, req.URL, id[1])
			}
			seen[string(id[1])] = true
		}
		if odd := oddSpaces.Find(body); odd != nil {
			b.s.t.Errorf("%s %s: a space precedes %q", req.Method, req.URL, odd)
		}
		for _, field := range requiredFields.FindAllSubmatch(body, -1) {
			label := regexp.MustCompile(`<label class="lab" for="` + regexp.QuoteMeta(string(field[1])) + `">[^<]*<span [^>]*>\(required\)</span>`)
			if !label.Match(body) {
				b.s.t.Errorf("%s %s: the label of the field %s does not say that it is required", req.Method, req.URL, field[1])
			}
		}
	}
	return Page{Status: res.StatusCode, Header: res.Header, Body: string(body), Cookies: res.Cookies()}
}

// ids matches the ids of elements.
var ids = regexp.MustCompile(` id="([^"]*)"`)

// oddSpaces matches a space before the end of a sentence.
var oddSpaces = regexp.MustCompile(`\s+[.,]\s*</(?:p|span|li|div)>`)

// requiredFields matches the fields of forms that must not be empty. They differ from optional fields by
// their labels.
var requiredFields = regexp.MustCompile(`<(?:input|textarea|select)(?: class="[^"]*")? id="([^"]*)"[^>]* required[ >]`)

// longNames matches the two parts of names that lose their middle.
var longNames = regexp.MustCompile(`<span class="mid"[^>]*><span>([^<]*)</span><span>([^<]*)</span>`)

// joinedWords matches the end of one inline element and the beginning of the next text without a space.
// Readers would see one word.
var joinedWords = regexp.MustCompile(`[\pL\pN.:)]+(?:</?(?:a|code|em|local-time|span|strong|time)(?: [^>]*)?>)+[\pL\pN(]+`)

// Client returns the client with which the browser sends requests, for tests of event streams.
func (b *Browser) Client() *http.Client { return b.client }

// SetCookies implements [http.CookieJar].
func (b *Browser) SetCookies(_ *url.URL, cookies []*http.Cookie) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range cookies {
		if c.MaxAge < 0 {
			delete(b.jar, c.Name)
		} else {
			b.jar[c.Name] = c
		}
	}
}

// Cookies implements [http.CookieJar].
func (b *Browser) Cookies(u *url.URL) []*http.Cookie {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []*http.Cookie
	for _, c := range b.jar {
		if strings.HasPrefix(b.s.URL, u.Scheme+"://"+u.Host) {
			out = append(out, &http.Cookie{Name: c.Name, Value: c.Value}) //nolint:gosec // a browser sends no attributes
		}
	}
	return out
}
