package doctor

import (
	"cmp"
	"context"
	"fmt"

	"workflowagent/internal/agent/config"
)

// Pods describes the worker pods of the Kubernetes target.
type Pods interface {
	Namespace() string
	// Origin returns the file or the variable of the pod template, or "".
	Origin() string
	// Notes returns what the template weakens.
	Notes() []string
}

func (e *examination) inPods() bool {
	return e.opts.Config != nil && e.opts.Config.DeployTarget == config.TargetKubernetes
}

func (e *examination) checkCluster(ctx context.Context) Result {
	if e.opts.Executor == nil || e.opts.Pods == nil {
		return fail(e.opts.ExecutorErr.Error(), "correct the configuration of the Kubernetes target")
	}
	if e.opts.Offline {
		return offline()
	}
	if err := e.opts.Executor.Check(ctx); err != nil {
		return fail(splitAdvice(err.Error(), "check the agent's service account or kubeconfig, and its connection to the cluster"))
	}
	namespace := e.opts.Pods.Namespace()
	if namespace == e.opts.AgentNamespace {
		return warn("jobs run in the agent's own namespace "+namespace+", where a job that can create pods can read the agent's token",
			"set kubernetes_namespace to a namespace for jobs only")
	}
	return ok("the cluster responds; jobs run in namespace " + namespace)
}

func (e *examination) checkTemplate(context.Context) Result {
	if e.opts.Pods == nil {
		return skip("no configuration of pods can be read") // the check of the cluster has the error
	}
	origin, notes := e.opts.Pods.Origin(), e.opts.Pods.Notes()
	switch {
	case origin == "":
		return ok("no pod template")
	case len(notes) > 0:
		r := warn("the pod template from "+origin+" weakens the isolation of jobs, or limits their time", "check that each point is intended; config pod prints the pod")
		r.Details = notes
		return r
	}
	return ok("the pod template from " + origin + " is valid")
}

// podImage returns the image of the trial job in a pod. The cluster pulls it when the job starts.
func (e *examination) podImage() (string, error) {
	c := e.opts.Config
	image := cmp.Or(e.opts.JobImage, c.OverrideImageReference, defaultImage)
	if !c.AllowsImage(image) {
		return "", fmt.Errorf("allowed_images does not allow %s: name another image with --job-image", image)
	}
	return image, nil
}
