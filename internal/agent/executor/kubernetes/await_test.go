package kubernetes

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/agent/executor/kubernetes/podspec"
	"workflowagent/internal/dev/executortest/program"
	"workflowagent/internal/workflow"
)

func wantFailure(t *testing.T, err error, reason workflow.Reason, text string) {
	t.Helper()
	failed, ok := errors.AsType[*executor.Error](err)
	if !ok || failed.Reason != reason || !strings.Contains(failed.Message, text) || strings.Contains(failed.Message, "\n") {
		t.Errorf("got %v, want reason %q and a line with %q", err, reason, text)
	}
}

// TestCannotStart checks that the failure of a pod that cannot start states the cause in the words of
// the cluster, and that nothing remains.
func TestCannotStart(t *testing.T) {
	s := newSpace(t)
	for name, test := range map[string]struct {
		template string
		image    string
		reason   workflow.Reason
		text     string
		timeout  time.Duration // the start timeout, if only that ends the wait
	}{
		"no node":        {template: `{"spec":{"nodeSelector":{"missing":"label"}}}`, reason: workflow.ReasonLaunch, text: "didn't match Pod's node affinity/selector", timeout: 15 * time.Second},
		"image":          {image: "127.0.0.1:1/missing:1", reason: workflow.ReasonImage, text: "The image 127.0.0.1:1/missing:1 cannot be pulled ("},
		"image name":     {image: "Invalid/NAME", reason: workflow.ReasonImage, text: "cannot be used (InvalidImageName)"},
		"missing Secret": {template: fmt.Sprintf(`{"spec":{"containers":[{"name":%q,"envFrom":[{"secretRef":{"name":"missing"}}]}]}}`, podspec.MainContainer), reason: workflow.ReasonLaunch, text: `secret "missing" not found`},
		"missing volume": {template: `{"spec":{"volumes":[{"name":"v","secret":{"secretName":"missing"}}],"containers":[{"name":"pulumi-workflow","volumeMounts":[{"name":"v","mountPath":"/v"}]}]}}`, reason: workflow.ReasonLaunch, text: `secret "missing" not found`, timeout: 15 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for timeout := test.timeout; ; timeout *= 4 {
				e := s.open(t, Options{Pods: s.builder(podspec.Config{Template: test.template}), PodStartTimeout: timeout, tolerance: time.Second})
				h := s.prepare(t, e, func(spec *executor.Spec) {
					if test.image != "" {
						spec.Image = &workflow.Image{Reference: test.image}
					}
				})
				if err := e.Start(t.Context(), h, launchDocument(t)); err != nil {
					t.Fatalf("Start: %v", err)
				}
				err := e.AwaitStart(t.Context(), h, func(string) {})
				e.Close()
				if timeout > 0 && timeout < time.Minute && !strings.Contains(fmt.Sprint(err), test.text) {
					continue // a busy cluster had not yet said why
				}
				wantFailure(t, err, test.reason, test.text)
				if left := s.objects(jobOf(t, h).Name); len(left) > 0 {
					t.Errorf("leftovers: %q", left)
				}
				return
			}
		})
	}
}

// TestQuota prepares a job while the namespace's quota is taken.
func TestQuota(t *testing.T) {
	s := newSpace(t)
	e := s.open(t, Options{})
	defer e.Close()
	s.create("resourcequotas", &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "quota"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}},
	})
	pod, err := e.opts.Pods.Pod(s.spec())
	if err != nil {
		t.Fatal(err)
	}
	s.eventually(t, "the quota applies", func() bool {
		_, err := s.client.createPod(t.Context(), pod, true, rest.NoWarnings{})
		return err != nil && overQuota(err)
	})
	spec := s.spec()
	spec.JobID, spec.Epoch, spec.Owner = "quota", 1, "owner"
	var told []string
	_, err = e.Prepare(t.Context(), spec, func(line string) {
		told = append(told, line)
		if err := s.client.rest.Delete().Namespace(s.name).Resource("resourcequotas").Name("quota").Do(t.Context()).Error(); len(told) == 1 && err != nil {
			t.Error(err)
		}
	})
	if err != nil || len(told) < 2 || !strings.Contains(told[0], "Waiting for the quota of the namespace") || !strings.Contains(told[0], "exceeded quota") {
		t.Errorf("Prepare: %q, %v", told, err)
	}
}

// cutting breaks each watch after a moment, and answers every third one that its version has expired.
type cutting struct {
	next    http.RoundTripper
	watches atomic.Int64
}

func (c *cutting) RoundTrip(r *http.Request) (*http.Response, error) {
	watch := r.URL.Query().Get("watch") != ""
	if watch && c.watches.Add(1)%3 == 0 {
		const gone = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,"message":"too old resource version"}`
		return &http.Response{
			Status: "410 Gone", StatusCode: http.StatusGone, Proto: r.Proto, ProtoMajor: r.ProtoMajor, ProtoMinor: r.ProtoMinor,
			Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewBufferString(gone)), Request: r,
		}, nil
	}
	response, err := c.next.RoundTrip(r)
	if err == nil && watch {
		body := response.Body
		time.AfterFunc(300*time.Millisecond, func() { _ = body.Close() })
	}
	return response, err
}

// TestBrokenWatch runs a job whose watch breaks again and again.
func TestBrokenWatch(t *testing.T) {
	s := newSpace(t)
	cut := new(cutting)
	config := rest.CopyConfig(s.admin)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		cut.next = next
		return cut
	})
	e := s.open(t, Options{Config: config})
	defer e.Close()
	h := s.prepare(t, e)
	s.run(t, e, h, launchDocument(t, program.Action{Pause: 8 * time.Second}, program.Action{Exit: new(7)}))
	if exit, err := e.Wait(t.Context(), h); err != nil || exit.Code != 7 || exit.Lost || exit.Reason != workflow.ReasonNone {
		t.Errorf("Wait: %+v, %v", exit, err)
	}
	if n := cut.watches.Load(); n < 4 {
		t.Errorf("the watch began only %d times", n)
	}
	if err := e.Remove(t.Context(), h); err != nil {
		t.Errorf("Remove: %v", err)
	}
	if left := s.objects(jobOf(t, h).Name); len(left) > 0 {
		t.Errorf("leftovers: %q", left)
	}
}

// TestEventsAreReadRarely waits for a pod that never starts.
func TestEventsAreReadRarely(t *testing.T) {
	var reads atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reads.Add(1)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind":"EventList","apiVersion":"v1","items":[{"type":"Warning","reason":"Late","message":"the cause"}]}`)
	}))
	defer server.Close()
	e, err := New(Options{Config: &rest.Config{Host: server.URL}, Log: testLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	waiting := view{pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "waits", Namespace: "jobs"}}}
	a := &awaiting{executor: e, told: map[string]bool{}, progress: func(string) {}, deadline: began.Add(defaultStartTimeout), pod: waiting.pod}
	now := began
	for ; !now.After(a.deadline); now = now.Add(awaitTick) {
		if done, _ := a.judge(t.Context(), waiting, now); done {
			t.Fatalf("the wait ended after %s", now.Sub(began))
		}
	}
	// After 3, 8, 18, 38 and 78 s, and then about once per minute.
	if n := reads.Load(); n < 12 || n > 15 {
		t.Errorf("the events were read %d times in %s", n, now.Sub(began))
	}
	before := reads.Load()
	done, failed := a.judge(t.Context(), waiting, now)
	if reads.Load() != before+1 || !done {
		t.Error("the events were not read at the end")
	}
	wantFailure(t, failed, workflow.ReasonLaunch, "Late: the cause")
}
