// Package kubernetes runs jobs in the pods of a cluster.
//
// Each job has a pod and a Secret of the same name, which derives from the agent, the job and the
// epoch. Prepare only has the cluster check the pod. Start creates the Secret with the launch
// document, then the pod, and then makes the pod own the Secret, so that the cluster removes both
// together. An agent that exits in between repeats Start, which finds the objects by their name and
// creates the missing ones. Because Start returns before a node has accepted the pod, the job's
// runner requests leave from the server itself, and the server lets only the first pod of an epoch
// start.
//
// The executor follows its pods with one watch per owner. It concludes from a missing pod only after
// it has asked the cluster for that pod. A broken watch therefore delays the news about a job, but
// does not end one.
//
// A pod's log disappears together with the pod, and the cluster keeps only a part of a long log. The
// runner sends the job's log to the server itself. The part that it could not send is printed by a
// sidecar, once the runner has exited.
package kubernetes

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/agent/executor/kubernetes/podspec"
	"workflowagent/internal/workflow"
)

// Name is this executor's deploy_target value.
const Name = "kubernetes"

const (
	defaultStartTimeout = 10 * time.Minute
	checkTime           = 10 * time.Second
	// minMinor is the minor version of the first cluster in which sidecars end with their pod.
	minMinor = 29
)

// Pods builds the pods of jobs. [*podspec.Builder] implements it.
type Pods interface {
	Namespace() string
	Pod(spec executor.Spec) (*corev1.Pod, error)
	Reload() error
}

// Options configure an [Executor].
type Options struct {
	Config *rest.Config // the connection to the cluster; see [LoadConfig]
	Pods   Pods
	// PodStartTimeout is how long a pod may take to start: to be scheduled and to fetch its images. 0
	// means 10 minutes.
	PodStartTimeout time.Duration
	// DebugPodTTL is how long the pod of a finished job remains if it has the label
	// [podspec.LabelDebug]. 0 means that it does not.
	DebugPodTTL time.Duration
	Log         *logrus.Entry

	tolerance, orphanTime, orphanPause time.Duration // the constants of the same name, unless a test changes them
}

// Executor runs jobs in pods.
type Executor struct {
	opts   Options
	client *client

	starting sync.Map // names of the pods that Start is currently creating

	mu      sync.Mutex
	session *session           // nil until a call needs a watch
	stopped map[types.UID]bool // pods that Stop deleted
	capable bool               // the cluster's version was checked
}

// session is the work in the background between two calls of Close.
type session struct {
	ctx      context.Context
	stop     context.CancelFunc
	work     sync.WaitGroup
	watchers map[string]*watcher // by namespace and owner
	tails    map[types.UID]*tail
}

// New returns an executor. It does not connect to the cluster: [Executor.Check] reports if the
// cluster is unavailable.
func New(o Options) (*Executor, error) {
	if o.PodStartTimeout == 0 {
		o.PodStartTimeout = defaultStartTimeout
	}
	o.tolerance = cmp.Or(o.tolerance, tolerance)
	o.orphanTime, o.orphanPause = cmp.Or(o.orphanTime, orphanTime), cmp.Or(o.orphanPause, orphanPause)
	c, err := newClient(o.Config)
	if err != nil {
		return nil, err
	}
	return &Executor{opts: o, client: c, stopped: map[types.UID]bool{}}, nil
}

// Name returns [Name].
func (e *Executor) Name() string { return Name }

// Close ends the watches and the copies of spools. It does not affect pods.
func (e *Executor) Close() error {
	e.mu.Lock()
	s := e.session
	e.session = nil
	e.mu.Unlock()
	if s == nil {
		return nil
	}
	s.stop()
	s.work.Wait()
	for _, t := range s.tails {
		t.discard()
	}
	return nil
}

// Check checks that the cluster responds, is new enough, and lets the agent list its pods.
func (e *Executor) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	namespace := e.opts.Pods.Namespace()
	if _, err := e.client.pods(ctx, namespace, podspec.LabelName+"="+podspec.NameValue, 1); err != nil {
		if answered(err) {
			return fmt.Errorf("the agent cannot use namespace %s of the cluster at %s: %s; grant its service account the rights of the installation's Role", namespace, e.client.host, words(err))
		}
		return fmt.Errorf("the cluster at %s does not respond: %s", e.client.host, words(err))
	}
	e.mu.Lock()
	capable := e.capable
	e.mu.Unlock()
	if capable {
		return nil
	}
	version, err := e.client.version(ctx)
	if err != nil {
		return fmt.Errorf("the cluster at %s does not report its version: %s", e.client.host, words(err))
	}
	if minor, err := strconv.Atoi(strings.TrimRight(version, "+")); err == nil && minor < minMinor {
		return fmt.Errorf("the cluster at %s has Kubernetes 1.%d, but jobs need 1.%d or later: upgrade the cluster", e.client.host, minor, minMinor)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.capable = true
	return nil
}

func failure(reason workflow.Reason, what string, err error) *executor.Error {
	message := what
	if err != nil {
		message += ": " + words(err)
	}
	return &executor.Error{Reason: reason, Message: message, Err: err}
}

var _ executor.Launcher = (*Executor)(nil)

// job is the executor's own data in an [executor.Handle].
type job struct {
	Cluster   string          `json:"cluster"` // the address of its API
	Namespace string          `json:"namespace"`
	Owner     string          `json:"owner"`
	Name      string          `json:"name"`          // of the pod and the Secret
	Pod       json.RawMessage `json:"pod,omitempty"` // the pod to create; missing in a handle of List
}

func (e *Executor) newJob(owner string, pod *corev1.Pod) job {
	return job{Cluster: e.client.host, Namespace: pod.Namespace, Owner: owner, Name: pod.Name}
}

// open decodes a handle and returns the job and the watcher of its pod. It checks the name in the
// handle, because handles are read from files.
func (e *Executor) open(h executor.Handle) (j job, _ *watcher, err error) {
	if err := h.Decode(Name, &j); err != nil {
		return j, nil, err
	}
	if j.Namespace == "" || j.Name != podspec.Name(j.Owner, h.JobID, h.Epoch) {
		return j, nil, fmt.Errorf("the handle of job %s does not name an object of this executor: %q", h.JobID, j.Name)
	}
	w, err := e.watcher(j.Namespace, j.Owner)
	return j, w, err
}

func (e *Executor) watcher(namespace, owner string) (*watcher, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.session
	if s == nil {
		s = &session{watchers: map[string]*watcher{}, tails: map[types.UID]*tail{}}
		library := funcr.New(func(prefix, args string) { e.opts.Log.Debug(strings.TrimSpace(prefix + " " + args)) }, funcr.Options{})
		s.ctx, s.stop = context.WithCancel(klog.NewContext(context.Background(), library))
		e.session = s
	}
	key := namespace + "/" + owner
	w := s.watchers[key]
	if w == nil {
		var err error
		if w, err = e.newWatcher(s, namespace, owner); err != nil {
			return nil, err
		}
		s.watchers[key] = w
		s.work.Go(func() { w.informer.RunWithContext(s.ctx) })
		s.work.Go(func() { e.removeOrphans(s.ctx, namespace, owner) })
		if e.opts.DebugPodTTL > 0 {
			s.work.Go(func() { e.reap(s.ctx, w) })
		}
	}
	return w, nil
}
