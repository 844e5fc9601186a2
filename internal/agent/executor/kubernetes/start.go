package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/agent/executor/kubernetes/podspec"
	"workflowagent/internal/protocol"
	"workflowagent/internal/retry"
	"workflowagent/internal/workflow"
)

const (
	// clusterTime is how long an unstarted job waits for a cluster that does not respond.
	clusterTime = 10 * time.Minute
	// quotaTime is how long Start waits for the quota that another job has taken since Prepare.
	quotaTime = time.Minute
	// spendTime bounds the attempts to remove the launch document from the Secret. The document is
	// useless by then, and the Secret is removed with the pod.
	spendTime = 10 * time.Second

	// maxLaunch bounds the launch document in bytes. It leaves room for the credentials of a registry.
	maxLaunch = corev1.MaxSecretSize - 16<<10

	hubKey = "https://index.docker.io/v1/"
)

var (
	clusterRetry = retry.Policy{First: time.Second, Max: 15 * time.Second}
	spendRetry   = retry.Policy{First: 200 * time.Millisecond, Max: 2 * time.Second}
)

// errExists reports that the job already has a pod.
var errExists = errors.New("an earlier call started the job")

// Prepare builds the job's pod and has the cluster check it. It creates no objects, so that an agent
// that exits before it has written its journal leaves nothing behind. While a quota of the namespace
// does not allow the pod, Prepare waits.
func (e *Executor) Prepare(ctx context.Context, spec executor.Spec, progress func(line string)) (executor.Handle, error) {
	if err := e.opts.Pods.Reload(); err != nil {
		e.opts.Log.WithError(err).Warn("reading the pod template failed; using the last valid one")
	}
	pod, err := e.opts.Pods.Pod(spec)
	if err != nil {
		return executor.Handle{}, err
	}
	if err := e.tryPod(ctx, pod, progress); err != nil {
		return executor.Handle{}, err
	}
	j := e.newJob(spec.Owner, pod)
	if j.Pod, err = json.Marshal(pod); err != nil {
		return executor.Handle{}, fmt.Errorf("encoding the pod of job %s: %w", spec.JobID, err)
	}
	progress(fmt.Sprintf("The cluster accepts the pod %s in namespace %s", pod.Name, pod.Namespace))
	return executor.NewHandle(Name, spec.JobID, spec.Epoch, time.Now(), j)
}

func (e *Executor) tryPod(ctx context.Context, pod *corev1.Pod, progress func(line string)) error {
	began := time.Now()
	told := ""
	tell := func(line string) {
		if line != told {
			progress(line)
			told = line
		}
	}
	for failures := 0; ; failures++ {
		_, err := e.client.createPod(ctx, pod, true, rest.NoWarnings{})
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case apierrors.IsAlreadyExists(err):
			return failure(workflow.ReasonLaunch, "The job already has a pod", errExists)
		case overQuota(err):
			if time.Since(began) > e.opts.PodStartTimeout {
				return failure(workflow.ReasonLaunch, fmt.Sprintf("The quota of namespace %s did not allow the job's pod within %s", pod.Namespace, e.opts.PodStartTimeout), err)
			}
			tell("Waiting for the quota of the namespace: " + words(err))
		case answered(err):
			return failure(workflow.ReasonLaunch, "The cluster refuses the job's pod (the agent's command doctor explains the remedy)", err)
		default:
			if time.Since(began) > clusterTime {
				return failure(workflow.ReasonLaunch, fmt.Sprintf("The cluster did not check the job's pod within %s; the job did not run", clusterTime), err)
			}
			e.opts.Log.WithError(err).WithField("pod", pod.Name).Warn("the cluster does not check a job's pod; retrying")
			tell("The cluster does not respond; waiting for it")
		}
		if err := clusterRetry.Wait(ctx, min(failures, 10), err); err != nil {
			return err
		}
	}
}

// Start creates the job's Secret and pod. Called again, it creates those that are missing.
func (e *Executor) Start(ctx context.Context, h executor.Handle, launch []byte) error {
	j, w, err := e.open(h)
	if err != nil {
		return err
	}
	pod := new(corev1.Pod)
	if err := json.Unmarshal(j.Pod, pod); err != nil || pod.Name != j.Name || pod.Namespace != j.Namespace {
		return failure(workflow.ReasonLaunch, "The handle of the job does not contain its pod", nil)
	}
	if _, taken := e.starting.LoadOrStore(j.Name, true); taken {
		return executor.ErrStarted
	}
	defer e.starting.Delete(j.Name)
	if len(launch) > maxLaunch {
		return failure(workflow.ReasonLaunch, "The job's definition is larger than 1 MiB, the limit of a Secret: shorten its commands and variables, or run the job with another deploy_target", nil)
	}
	w.expect(j.Name)
	err = e.start(ctx, pod, secret(pod, launch))
	if _, final := errors.AsType[*executor.Error](err); err == nil || final || errors.Is(err, executor.ErrStarted) {
		return err
	}
	return fmt.Errorf("starting job %s: %w", h.JobID, err)
}

func (e *Executor) start(ctx context.Context, pod *corev1.Pod, s *corev1.Secret) error {
	err := e.client.createSecret(ctx, s)
	if apierrors.IsAlreadyExists(err) {
		// An earlier Start was interrupted. It may have started the job, which then no longer needs
		// the document.
		found, err := e.client.pod(ctx, pod.Namespace, pod.Name)
		switch {
		case err == nil:
			return e.adopt(ctx, found)
		case !apierrors.IsNotFound(err):
			return err
		}
		if err := e.client.patchSecret(ctx, s.Namespace, s.Name, map[string]any{"data": s.Data}); err != nil {
			return err
		}
	} else if err != nil {
		if answered(err) {
			return failure(workflow.ReasonLaunch, "The cluster refuses the job's Secret", err)
		}
		return err
	}
	created, err := e.create(ctx, pod)
	if apierrors.IsAlreadyExists(err) {
		return e.adopt(ctx, pod)
	}
	if err != nil {
		if !answered(err) {
			return err
		}
		reason := failure(workflow.ReasonLaunch, "The cluster refuses the job's pod", err)
		return errors.Join(reason, e.client.deleteSecret(ctx, s.Namespace, s.Name))
	}
	return e.own(ctx, created)
}

// create creates the pod. It waits for a limited time if the quota was taken since Prepare.
func (e *Executor) create(ctx context.Context, pod *corev1.Pod) (created *corev1.Pod, err error) {
	limited, cancel := context.WithTimeout(ctx, min(quotaTime, e.opts.PodStartTimeout))
	defer cancel()
	err = clusterRetry.Do(limited, overQuota, func() (err error) {
		created, err = e.client.createPod(ctx, pod, false, rest.NoWarnings{})
		return err
	})
	return created, err
}

// adopt completes an interrupted Start whose pod exists.
func (e *Executor) adopt(ctx context.Context, pod *corev1.Pod) error {
	found, err := e.client.pod(ctx, pod.Namespace, pod.Name)
	if apierrors.IsNotFound(err) {
		return executor.ErrStarted // and removed meanwhile
	}
	if err != nil {
		return err
	}
	for _, label := range []string{podspec.LabelOwner, podspec.LabelJob, podspec.LabelEpoch} {
		if found.Labels[label] != pod.Labels[label] {
			return failure(workflow.ReasonLaunch, fmt.Sprintf("The pod %s in namespace %s belongs to another job: remove it", pod.Name, pod.Namespace), nil)
		}
	}
	if err := e.own(ctx, found); err != nil {
		return err
	}
	return executor.ErrStarted
}

// own makes the pod own its Secret.
func (e *Executor) own(ctx context.Context, pod *corev1.Pod) error {
	err := e.client.patchSecret(ctx, pod.Namespace, pod.Name, map[string]any{
		"metadata": map[string]any{"ownerReferences": []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}}},
	})
	if apierrors.IsNotFound(err) {
		return nil // the pod is gone as well, or will not start
	}
	return err
}

// secret returns the job's Secret: the launch document and, if the job has credentials for its
// image's registry, these in the form that the cluster requires.
func secret(pod *corev1.Pod, launch []byte) *corev1.Secret {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: pod.Name, Namespace: pod.Namespace, Labels: maps.Clone(pod.Labels), Annotations: maps.Clone(pod.Annotations),
		},
		Type: corev1.SecretTypeOpaque,
		Data: map[string][]byte{podspec.LaunchKey: launch},
	}
	if pulls(pod) {
		s.Type = corev1.SecretTypeDockerConfigJson
		s.Data[corev1.DockerConfigJsonKey] = registryLogin(launch)
	}
	return s
}

// pulls reports whether the pod's images are fetched with the job's own credentials.
func pulls(pod *corev1.Pod) bool {
	return slices.Contains(pod.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: pod.Name})
}

var noLogin = []byte(`{"auths":{}}`)

// registryLogin returns the registry credentials of the launch document's image as a docker
// configuration.
func registryLogin(launch []byte) []byte {
	var document protocol.Launch
	if json.Unmarshal(launch, &document) != nil || document.Definition == nil || document.Definition.Image == nil || document.Definition.Image.Credentials == nil {
		return noLogin
	}
	image := document.Definition.Image
	key := hubKey
	if ref, err := name.ParseReference(image.Reference); err == nil && ref.Context().RegistryStr() != name.DefaultRegistry {
		key = ref.Context().RegistryStr()
	}
	type entry struct {
		Username string `json:"username"`
		Password string `json:"password"`
		Auth     []byte `json:"auth"` // encoded in base64
	}
	c := image.Credentials
	config, err := json.Marshal(map[string]any{"auths": map[string]entry{key: {c.Username, c.Password, []byte(c.Username + ":" + c.Password)}}})
	if err != nil {
		return noLogin
	}
	return config
}

// spend replaces the launch document and the credentials in the Secret, which a started pod no
// longer needs.
func (e *Executor) spend(ctx context.Context, pod *corev1.Pod) {
	data := map[string][]byte{podspec.LaunchKey: []byte(podspec.SpentLaunch)}
	if pulls(pod) {
		data[corev1.DockerConfigJsonKey] = noLogin
	}
	ctx, cancel := context.WithTimeout(ctx, spendTime)
	defer cancel()
	err := spendRetry.Do(ctx, func(err error) bool { return !answered(err) }, func() error {
		return e.client.patchSecret(ctx, pod.Namespace, pod.Name, map[string]any{"data": data})
	})
	if err != nil && !apierrors.IsNotFound(err) {
		e.opts.Log.WithError(err).WithField("pod", pod.Name).Warn("removing the launch document from the Secret of a started job failed; it is removed with the pod")
	}
}
