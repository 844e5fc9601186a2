package webhooks

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"workflowagent/internal/retry"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/termtext"
	"workflowagent/internal/workflow"
)

// The pauses between attempts cover an outage of a receiver of about two hours.
var (
	againDefault = retry.Policy{First: 30 * time.Second, Max: time.Hour}
	restDefault  = retry.Policy{First: time.Second, Max: time.Minute}
)

const (
	// maxAttempts is the maximum number of attempts of a delivery.
	maxAttempts = 9
	// lease is the time after which another server sends a webhook's deliveries if this server
	// stopped. It is longer than an attempt.
	lease = time.Minute
	// maxTurn is the maximum number of deliveries of a webhook that are sent in a row while other
	// webhooks might wait.
	maxTurn = 20
	// maxChain is the maximum number of stacks whose deployments start each other.
	maxChain = 10
	// maxHeaders is the maximum size of the stored headers in bytes.
	maxHeaders = 4 << 10
)

// The recorded status codes of deliveries that queue deployments, which no receiver responds to.
const (
	couldQueue     = 200
	queued         = 202
	refusedQueuing = 403
)

// claimed is a delivery that this server sends.
type claimed struct {
	hook     store.Webhook
	delivery store.WebhookDelivery
	lease    string
	asked    bool // by a user who waits for the outcome; the delivery needs no lease
	final    bool // this is the last attempt
}

// outcome is the end of an attempt.
type outcome struct {
	at       time.Time // of the start, by this machine's clock
	duration time.Duration
	header   map[string]string   // of the request
	status   int                 // 0 without a response
	reply    map[string][]string // headers of the response
	body     string              // of the response, or the error
}

func (o outcome) succeeded() bool { return o.status >= 200 && o.status < 300 }

// ownerOf returns the owner of a webhook's deliveries and lease. The webhook itself is its organization's.
func ownerOf(h store.Webhook) scope.Set { return scope.Webhook(h.OrgID, h.ID) }

// claim returns the next delivery of a webhook that no other server sends. ok is false if there is
// none.
func (s *Service) claim(ctx context.Context, h store.DueWebhook, id string) (c claimed, ok bool, err error) {
	err = s.db.Write(ctx, scope.Webhook(h.OrgID, h.HookID), func(tx *store.Tx) error {
		w, err := tx.WebhookSender(h.HookID)
		if ok = false; err != nil || w.NotBefore.After(tx.Now()) {
			return err
		}
		w.Lease = id
		c, ok, err = next(tx, w)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return claimed{}, false, nil // the webhook was deleted
	}
	return c, ok, err
}

// next claims the next delivery of a webhook for the holder of the lease. If none is due, it
// releases the lease.
func next(tx *store.Tx, w store.WebhookSender) (c claimed, ok bool, err error) {
	now := tx.Now()
	c.lease, w.NotBefore = w.Lease, now
	if c.hook, err = tx.Webhook(w.HookID); err != nil {
		return c, false, err
	}
	for c.hook.Active {
		c.delivery, err = tx.DueDelivery(w.HookID, now)
		if errors.Is(err, store.ErrNotFound) {
			break
		}
		if err != nil {
			return c, false, err
		}
		if c.delivery.Attempts >= maxAttempts { // the server stopped during the last attempt
			c.delivery.Status = store.DeliveryFailed
			c.delivery.ResponseBody = "the server stopped during the last attempt; its result is unknown"
			if err := tx.SaveDelivery(c.delivery); err != nil {
				return c, false, err
			}
			continue
		}
		c.delivery.Attempts++
		c.delivery.DueAt, w.NotBefore = now.Add(lease), now.Add(lease)
		if err := tx.SaveDelivery(c.delivery); err != nil {
			return c, false, err
		}
		ok = true
		break
	}
	return c, ok, tx.SaveWebhookSender(w)
}

// attempt makes one attempt of a delivery and records its outcome. If more is true and the receiver
// works, it also claims the webhook's next delivery.
func (s *Service) attempt(ctx context.Context, c claimed, more bool) (following claimed, ok bool, err error) {
	if c.hook.Format == FormatDeployments {
		return s.deploy(ctx, c, more)
	}
	o := s.post(ctx, c)
	err = s.db.Write(ctx, ownerOf(c.hook), func(tx *store.Tx) (err error) {
		following, ok, err = s.record(tx, c, o, more)
		return err
	})
	return following, ok, err
}

// post sends a delivery.
func (s *Service) post(ctx context.Context, c claimed) outcome {
	o := outcome{at: time.Now()}
	fail := func(err error) outcome {
		o.duration, o.body = time.Since(o.at), err.Error()
		return o
	}
	body, err := render(c.hook.Format, c.delivery.Kind, c.delivery.Payload)
	if err != nil {
		return fail(err)
	}
	secret, err := s.secretOf(ctx, c.hook)
	if err != nil {
		s.log.WithError(err).WithField("webhook", c.hook.ID).Error("sending a delivery failed")
		return fail(errors.New("the server cannot decrypt the secret of the webhook; set it again"))
	}
	o.header = map[string]string{
		"Content-Type": "application/json", "User-Agent": "workflow-server",
		"Pulumi-Webhook-ID": c.delivery.ID, "Pulumi-Webhook-Kind": c.delivery.Kind,
	}
	if secret != "" {
		o.header["Pulumi-Webhook-Signature"] = sign(body, secret)
	}
	answer, err := s.opts.Receivers.Post(ctx, c.hook.URL, o.header, body)
	if err != nil {
		return fail(err)
	}
	o.duration, o.status, o.reply, o.body = time.Since(o.at), answer.Status, answer.Header, string(answer.Body)
	return o
}

// sign returns the hexadecimal HMAC-SHA256 of a body.
func sign(body []byte, secret string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	return hex.EncodeToString(mac.Sum(nil))
}

// deploy queues the deployment that a delivery demands. It does so in the transaction that records
// the outcome, so that a delivery never starts two deployments.
func (s *Service) deploy(ctx context.Context, c claimed, more bool) (following claimed, ok bool, err error) {
	for range maxRenames {
		var st store.Stack
		st, err = store.Read(ctx, s.db, func(tx *store.Tx) (store.Stack, error) { return targetOf(tx, c.hook) })
		if err != nil && fault.KindOf(err) == "" {
			break
		}
		if following, ok, err = s.deployTo(ctx, c, st, more); !errors.Is(err, errRenamed) {
			break
		}
	}
	if errors.Is(err, store.ErrNotFound) {
		return claimed{}, false, nil
	}
	return following, ok, err
}

// maxRenames bounds the attempts to deploy a stack whose name others use at the same time.
const maxRenames = 3

var errRenamed = fmt.Errorf("%w: the stack of the name that a webhook deploys changes", store.ErrBusy)

// deployTo is deploy for the stack that has the name, which is zero if none has it.
func (s *Service) deployTo(ctx context.Context, c claimed, st store.Stack, more bool) (following claimed, ok bool, err error) {
	owners := ownerOf(c.hook)
	if st.ID != "" {
		owners = owners.And(scope.Stack(st.OrgID, st.ID))
	}
	err = s.db.Write(ctx, owners, func(tx *store.Tx) error {
		ok = false
		cur, err := tx.Delivery(c.hook.ID, c.delivery.ID)
		if err != nil || cur.Status != c.delivery.Status || cur.Attempts != c.delivery.Attempts {
			return err
		}
		began := time.Now()
		o := outcome{at: tx.Now(), status: queued}
		mine := c
		deployment, err := s.queue(ctx, tx, c, st.ID)
		var refused *fault.Error
		switch {
		case errors.As(err, &refused):
			o.status, o.body = refusedQueuing, refused.Message
		case err != nil:
			return err
		case deployment.ID == "" && deployment.Version > 0:
			o.status, o.body = couldQueue, fmt.Sprintf("Deployment #%d, which this webhook has queued for an earlier event, still waits and includes this event.", deployment.Version)
		case deployment.ID == "":
			o.status, o.body = couldQueue, "An event would queue an update of this stack."
		default:
			mine.delivery.DeploymentID = deployment.ID
			o.body = fmt.Sprintf("Deployment #%d is queued.", deployment.Version)
		}
		mine.final = true // the cause of a refusal seldom changes by itself
		o.duration = time.Since(began)
		following, ok, err = s.record(tx, mine, o, more)
		return err
	})
	return following, ok, err
}

// targetOf returns the stack that a webhook deploys, or an error with a [fault.Kind].
func targetOf(tx *store.Tx, h store.Webhook) (store.Stack, error) {
	org, err := tx.Organization(h.OrgID)
	if err != nil {
		return store.Stack{}, err
	}
	project, name, _ := target(h)
	st, err := tx.StackByName(org.Name, project, name)
	return st, store.IfMissing(err, fault.NotFound("stack '%s/%s/%s' does not exist", org.Name, project, name))
}

// queue queues an update of the stack that a webhook deploys. For a ping, it only checks whether it
// could, and returns the zero deployment. While an earlier deployment of the webhook waits, it returns
// only that deployment's version, unless a user asked for the delivery. Otherwise stacks that deploy
// each other could fill the queue. held is the stack that the transaction holds.
func (s *Service) queue(ctx context.Context, tx *store.Tx, c claimed, held string) (store.Deployment, error) {
	st, err := targetOf(tx, c.hook)
	if err != nil {
		return store.Deployment{}, err
	}
	if st.ID != held {
		return store.Deployment{}, errRenamed
	}
	p, err := identity.ActAs(tx, st, identity.Actor(c.hook.Actor))
	if err != nil {
		return store.Deployment{}, err
	}
	if err := p.Check(st, identity.Operate); err != nil {
		return store.Deployment{}, err
	}
	if c.delivery.Kind == kindPing {
		return store.Deployment{}, nil
	}
	event, err := tx.WebhookEvent(c.delivery.EventID)
	if err != nil {
		return store.Deployment{}, err
	}
	switch {
	case slices.Contains(event.Chain, st.ID):
		return store.Deployment{}, fault.Conflict("a deployment of %s led to this event, so that deploying the stack again could go on forever", st.Ref())
	case len(event.Chain) >= maxChain:
		return store.Deployment{}, fault.Conflict("the deployments of %d stacks have started each other, which is the limit", maxChain)
	}
	if !c.asked {
		version, err := tx.QueuedByWebhook(st.ID, c.hook.ID)
		if !errors.Is(err, store.ErrNotFound) {
			return store.Deployment{Version: version}, err
		}
	}
	return s.opts.Deploy(ctx, tx, p, st, workflow.Request{Operation: workflow.OperationUpdate, Inherit: true}, "webhook")
}

// record records an attempt. If more is true and the receiver works, it then claims the webhook's
// next delivery, and otherwise releases the lease.
func (s *Service) record(tx *store.Tx, c claimed, o outcome, more bool) (following claimed, ok bool, err error) {
	now, d := tx.Now(), c.delivery
	d.SentAt, d.Duration, d.Format = now.Add(-o.duration), o.duration, c.hook.Format
	d.RequestURL, d.RequestHeaders, d.ResponseCode = c.hook.URL, lines(o.header), int64(o.status)
	d.ResponseHeaders, d.ResponseBody = lines(o.reply), printable(o.body)
	switch {
	case o.succeeded():
		d.Status = store.DeliverySucceeded
	case c.final || d.Attempts >= maxAttempts:
		d.Status = store.DeliveryFailed
	default:
		d.DueAt = now.Add(s.opts.Again.Pause(int(d.Attempts-1), nil))
	}
	cur, err := tx.Delivery(c.hook.ID, d.ID)
	if errors.Is(err, store.ErrNotFound) { // the webhook was deleted
		return claimed{}, false, nil
	}
	if err != nil {
		return claimed{}, false, err
	}
	// Another server can have repeated the attempt after the lease ended.
	if cur.Status == c.delivery.Status {
		if err := tx.SaveDelivery(d); err != nil {
			return claimed{}, false, err
		}
		if err := tx.TrimDeliveries(c.hook.ID, kept); err != nil {
			return claimed{}, false, err
		}
	}
	w, err := tx.WebhookSender(c.hook.ID)
	if err != nil || c.asked || w.Lease != c.lease {
		return claimed{}, false, err
	}
	if o.succeeded() || c.hook.Format == FormatDeployments {
		w.Failures, w.NotBefore = 0, now
		if more {
			return next(tx, w)
		}
	} else {
		w.Failures++
		w.NotBefore = now.Add(s.opts.Rest.Pause(int(min(w.Failures-1, 30)), nil))
	}
	return claimed{}, false, tx.SaveWebhookSender(w)
}

// printable returns a text without control characters, except tabs and newlines.
func printable(text string) string {
	var b strings.Builder
	for line := range strings.Lines(strings.ToValidUTF8(text, "\uFFFD")) {
		content, newline := strings.CutSuffix(line, "\n")
		b.Write(termtext.Plain(nil, []byte(content)))
		if newline {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// lines returns the headers of a request or response as lines, in alphabetical order and cut.
func lines[V string | []string](headers map[string]V) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		values, ok := any(headers[name]).([]string)
		if !ok {
			values = []string{fmt.Sprint(headers[name])}
		}
		for _, value := range values {
			line := termtext.OneLine(name+": "+value, maxHeaders) + "\n"
			if b.Len()+len(line) > maxHeaders {
				return b.String()
			}
			b.WriteString(line)
		}
	}
	return b.String()
}
