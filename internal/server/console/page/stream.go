package page

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/a-h/templ"

	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
)

const (
	// renderEvery is the minimum time between two renderings of an open page.
	renderEvery = 250 * time.Millisecond
	// checkEvery is the maximum time until an open page is rendered again and its session checked.
	checkEvery = time.Minute
	// changeSlack is added to the time at which a page changes, because clocks differ.
	changeSlack = time.Second
	pingEvery   = 15 * time.Second
	// writeTimeout bounds the time that a browser takes to receive an event.
	writeTimeout = 30 * time.Second

	streamsPerUser = 50
	streamsInAll   = 2000
)

// streams counts the open event streams.
type streams struct {
	mu     sync.Mutex
	byUser map[string]int
	all    int
}

func (s *streams) enter(user string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= streamsInAll || s.byUser[user] >= streamsPerUser {
		return false
	}
	if s.byUser == nil {
		s.byUser = map[string]int{}
	}
	s.byUser[user]++
	s.all++
	return true
}

func (s *streams) leave(user string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.byUser[user]--; s.byUser[user] <= 0 {
		delete(s.byUser, user)
	}
}

// stream sends the changes of a page: after a notification, it renders the page again and sends the
// live elements whose HTML has changed. It checks the access before each rendering.
func (s *Site) stream(w http.ResponseWriter, v *Visit, a Access, show func(v *Visit) (view.Page, error)) error {
	p, err := s.shown(v, show)
	if err != nil {
		return err
	}
	if len(p.Live) == 0 && p.Feed == nil || !s.streams.enter(v.Who.User.ID) {
		w.WriteHeader(http.StatusNoContent) // the browser does not connect again
		return nil
	}
	defer s.streams.leave(v.Who.User.ID)

	ctx, cancel := context.WithTimeout(v.Context(), streamEnd-time.Duration(rand.Int64N(int64(time.Minute)))) // jitter
	defer cancel()
	changed := make(chan struct{}, 1)
	followed := topics{notes: s.opts.Notes, changed: changed, cancels: map[view.Topic]func(){}}
	defer followed.set(nil)
	followed.set(followedBy(v, p))
	out := startEvents(w)
	var feed sync.WaitGroup
	defer feed.Wait()
	defer cancel()
	if p.Feed != nil {
		feed.Go(func() {
			if err := p.Feed(ctx, out.send); err != nil && ctx.Err() == nil {
				s.opts.Log.WithError(err).Debug("a page's feed ended")
			}
		})
	}
	sent := &sentPage{elements: map[string][sha256.Size]byte{}}
	if err := s.send(ctx, v, p, sent, out); err != nil {
		return nil // the browser has left, or connects again
	}
	check, ping := time.NewTimer(untilCheck(p)), time.NewTicker(pingEvery)
	defer check.Stop()
	defer ping.Stop()
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.opts.Draining:
			out.send("bye", "stopping") //nolint:errcheck // the stream ends
			return nil
		case <-ping.C:
			if out.ping() != nil {
				return nil
			}
			continue
		case <-check.C:
		case <-changed:
		}
		began := time.Now()
		next, reason := s.refresh(ctx, v, a, show, sent, out)
		if reason != "" {
			out.send("bye", reason) //nolint:errcheck // the stream ends
			return nil
		}
		followed.set(followedBy(v, next))
		check.Reset(untilCheck(next))
		// Pages that are expensive to render are rendered less often.
		pause.Reset(max(renderEvery, 10*time.Since(began)))
		select {
		case <-pause.C:
		case <-s.opts.Draining:
		case <-ctx.Done():
			return nil
		}
	}
}

// followedBy returns the topics of an open page: what it shows, and the end of the visitor's sessions.
func followedBy(v *Visit, p view.Page) []view.Topic {
	if !v.SignedIn() {
		return p.Live
	}
	return append(slices.Clip(p.Live), view.Topic{Channel: identity.SessionTopic, About: v.Who.User.ID})
}

// untilCheck returns the time until an open page is rendered again without a notification.
func untilCheck(p view.Page) time.Duration {
	if p.ChangesAt.IsZero() {
		return checkEvery
	}
	return min(checkEvery, max(0, time.Until(p.ChangesAt))+changeSlack)
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// topics are the subscriptions of an open page, which signal changed.
type topics struct {
	notes   Notes
	changed chan<- struct{}
	cancels map[view.Topic]func()
}

// set replaces the subscriptions. A page follows other topics when, for example, its deployment has
// started an update.
func (t topics) set(wanted []view.Topic) {
	for topic, cancel := range t.cancels {
		if !slices.Contains(wanted, topic) {
			cancel()
			delete(t.cancels, topic)
		}
	}
	for _, topic := range wanted {
		if t.cancels[topic] != nil {
			continue
		}
		t.cancels[topic] = t.notes.Subscribe(topic.Channel, func(payload string) {
			if topic.Matches(payload) {
				signal(t.changed)
			}
		})
		signal(t.changed) // for notifications between the rendering and the subscription
	}
}

// refresh renders a page again for its visitor. It returns the page, and the reason why the
// stream ends, or "".
func (s *Site) refresh(ctx context.Context, v *Visit, a Access, show func(v *Visit) (view.Page, error), sent *sentPage, out *events) (p view.Page, reason string) {
	now, err := s.visitor(v.R.WithContext(ctx))
	if err == nil {
		err = s.admit(now, a)
	}
	switch {
	case ctx.Err() != nil:
		return p, "ended"
	case err == errSignIn: //nolint:errorlint // it is only compared with itself
		return p, "signed-out"
	case fault.KindOf(err) != "":
		return p, "denied"
	case err != nil:
		s.opts.Log.WithError(err).Debug("an open page cannot be checked")
		return p, "unavailable"
	}
	p, err = s.shown(now, show)
	if err == nil {
		err = s.send(ctx, now, p, sent, out)
	}
	if err != nil {
		if ctx.Err() == nil {
			s.opts.Log.WithError(err).Debug("an open page cannot be rendered")
		}
		if fault.KindOf(err) == "" {
			return p, "unavailable"
		}
		return p, "changed"
	}
	return p, ""
}

// shown returns a page of a stream, whose work takes its memory from the budget meanwhile.
func (s *Site) shown(v *Visit, show func(v *Visit) (view.Page, error)) (view.Page, error) {
	ctx, done := s.opts.Memory.BeginRead(v.Context())
	defer done()
	budget.Of(ctx).ForOrganization(v.Org.Name)
	once := *v
	once.R = v.R.WithContext(ctx)
	return show(&once)
}

// bye answers the request of a stream that the visitor may not open.
func (s *Site) bye(w http.ResponseWriter, reason string) {
	out := startEvents(w)
	out.send("bye", reason) //nolint:errcheck // the stream ends
}

// sentPage is what an open page shows, as hashes.
type sentPage struct {
	title    string
	elements map[string][sha256.Size]byte
}

// send sends what differs from the page that a visitor sees, and from the numbers of its navigation.
func (s *Site) send(ctx context.Context, v *Visit, p view.Page, sent *sentPage, out *events) error {
	n, err := s.numbers(v)
	if err != nil {
		return err
	}
	return sent.update(view.InZone(ctx, v.chosenZone()), out, p, n)
}

// update sends what differs from the shown page.
func (s *sentPage) update(ctx context.Context, out *events, p view.Page, n view.Numbers) error {
	var elements view.Elements
	collect := view.Collect(ctx, &elements)
	for _, part := range []templ.Component{view.Content(p), view.NavNumbers(n)} {
		if err := part.Render(collect, io.Discard); err != nil {
			return fmt.Errorf("rendering a page: %w", err)
		}
	}
	if title := p.Mark + "\n" + p.Title; title != s.title {
		s.title = title
		if err := out.send("title", map[string]string{"title": view.FullTitle(p), "mark": p.Mark}); err != nil {
			return err
		}
	}
	for _, id := range elements.IDs {
		sum := sha256.Sum256(elements.HTML[id])
		if s.elements[id] == sum {
			continue
		}
		s.elements[id] = sum
		if err := out.send("element", map[string]string{"id": id, "html": string(view.VisibleControls(elements.HTML[id]))}); err != nil {
			return err
		}
	}
	return nil
}

// events writes an event stream. Its methods can be called concurrently.
type events struct {
	mu   sync.Mutex
	w    io.Writer
	conn *http.ResponseController
}

// startEvents begins an event stream. It bounds each write itself, because the limits for other
// responses would end a stream that sends little.
func startEvents(w http.ResponseWriter) *events {
	for {
		inner, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			break
		}
		w = inner.Unwrap()
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	// A page whose scripts have received an answer that must not be stored is not kept for the button Back.
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	return &events{w: w, conn: http.NewResponseController(w)}
}

func (e *events) send(event string, data any) error {
	encoded, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("encoding an event: %w", err)
	}
	return e.write(fmt.Appendf(nil, "event: %s\ndata: %s\n\n", event, encoded))
}

func (e *events) ping() error { return e.write([]byte(": ping\n\n")) }

func (e *events) write(text []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	_ = e.conn.SetWriteDeadline(time.Now().Add(writeTimeout)) // only writers in tests do not support it
	_, err := io.Copy(e.w, bytes.NewReader(text))
	if err == nil {
		err = e.conn.Flush()
	}
	return fault.While(err, "sending an event")
}
