package forgetest

import "net/http"

// routes are what the APIs of most forges have in common.
type routes struct {
	*site
	handle  func(pattern string, h http.HandlerFunc)
	missing func(w http.ResponseWriter)
}

// guarded returns a function that adds routes which only an authorized request to an existing repository
// reaches. refused is the answer to others, and exists answers itself if there is no repository.
func guarded(mux *http.ServeMux, authorized func(r *http.Request) bool, refused map[string]any,
	exists func(w http.ResponseWriter, r *http.Request, owner, name string) bool,
) func(pattern string, h http.HandlerFunc) {
	return func(pattern string, h http.HandlerFunc) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if !authorized(r) {
				answer(w, http.StatusUnauthorized, refused)
				return
			}
			if owner := r.PathValue("owner"); owner == "" || exists(w, r, owner, r.PathValue("name")) {
				h(w, r)
			}
		})
	}
}

// sends returns a function that reports whether a request has a value of the header Authorization.
func sends(value string) func(r *http.Request) bool {
	return func(r *http.Request) bool { return r.Header.Get("Authorization") == value }
}

// thread is the form of the comments on pull requests.
type thread struct {
	list, item string // paths
	change     string // method that changes a comment
	form       func(c *comment) map[string]any
	text       func(body map[string]any) string
	send       func(w http.ResponseWriter, r *http.Request, list []any)
}

func body(m map[string]any) string { return text(m, "body") }

func sendPage(w http.ResponseWriter, r *http.Request, list []any) { answer(w, 200, page(w, r, list)) }

func (s routes) pull(path string, form func(p *pull) map[string]any) {
	s.handle("GET "+path+"/{number}", func(w http.ResponseWriter, r *http.Request) {
		if p := s.site.pull(r.PathValue("number")); p != nil {
			answer(w, 200, form(p))
			return
		}
		s.missing(w)
	})
}

func (s routes) comments(t thread) {
	s.handle("GET "+t.list, func(w http.ResponseWriter, r *http.Request) {
		list := []any{}
		for _, c := range s.site.comments[s.site.pull(r.PathValue("number")).number] {
			list = append(list, t.form(c))
		}
		t.send(w, r, list)
	})
	s.handle("POST "+t.list, func(w http.ResponseWriter, r *http.Request) {
		c := &comment{s.next(), Deployer, t.text(read(r))}
		number := s.site.pull(r.PathValue("number")).number
		s.site.comments[number] = append(s.site.comments[number], c)
		answer(w, 201, t.form(c))
	})
	s.handle(t.change+" "+t.item+"/{id}", func(w http.ResponseWriter, r *http.Request) {
		c := s.findComment(r.PathValue("id"))
		if c == nil {
			s.missing(w)
			return
		}
		c.body = t.text(read(r))
		answer(w, 200, t.form(c))
	})
}

// hooks serves the webhooks, to which the forge gives ids, except for the list.
func (s routes) hooks(path, change string, register func(h map[string]any)) {
	s.handle("POST "+path, func(w http.ResponseWriter, r *http.Request) {
		h := read(r)
		register(h)
		s.site.hooks = append(s.site.hooks, h)
		answer(w, 201, h)
	})
	s.handle(change+" "+path+"/{id}", func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, map[string]any{}) })
}
