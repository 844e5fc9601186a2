package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/agent/executor"
	"workflowagent/internal/agent/executor/kubernetes"
	"workflowagent/internal/checkup"
	"workflowagent/internal/workflow"
)

// Pods describes the worker pods of the Kubernetes target.
type Pods interface {
	Namespace() string
	// Origin returns the file or the variable of the pod template, or "".
	Origin() string
	// Notes returns what the template weakens.
	Notes() []string
}

// Cluster is the part of a cluster that the doctor uses. [kubernetes.Executor] implements it.
type Cluster interface {
	Examine(ctx context.Context, agentNamespace string) (kubernetes.Facts, error)
	TryPod(ctx context.Context, spec executor.Spec) (kubernetes.Admission, error)
}

func (e *examination) inPods() bool {
	return e.opts.Config != nil && e.opts.Config.DeployTarget == config.TargetKubernetes
}

func (e *examination) checkCluster(ctx context.Context) checkup.Result {
	if e.opts.Cluster == nil || e.opts.Pods == nil {
		return checkup.Fail(e.opts.ExecutorErr.Error(), "correct the configuration of the Kubernetes target")
	}
	if e.opts.Offline {
		return offline()
	}
	facts, err := e.opts.Cluster.Examine(ctx, e.opts.AgentNamespace)
	if err != nil {
		return checkup.Fail(err.Error(), "check the agent's service account or kubeconfig, and its connection to the cluster")
	}
	e.cluster = facts
	if least, old := facts.TooOld(); old {
		return checkup.Fail(fmt.Sprintf("the cluster at %s has Kubernetes %s, but jobs need %s or later", facts.Host, facts.Version, least), "upgrade the cluster")
	}
	return checkup.OK(fmt.Sprintf("Kubernetes %s at %s", facts.Version, facts.Host))
}

func (e *examination) checkRights(context.Context) checkup.Result {
	namespace := e.opts.Pods.Namespace()
	if len(e.cluster.Missing) > 0 {
		advice := fmt.Sprintf("create the installation's Role and RoleBinding in namespace %s, and the namespace if it is missing", namespace)
		return checkup.Fail("the agent lacks rights that jobs need", advice, e.cluster.Missing...)
	}
	if len(e.cluster.Wide) > 0 {
		return checkup.Warn("the agent has rights that it does not need, and that anyone who controls it could use",
			"bind its service account only to the installation's Role", e.cluster.Wide...)
	}
	return checkup.OK("the agent has exactly the rights that it needs in namespace " + namespace)
}

func (e *examination) checkNamespace(context.Context) checkup.Result {
	namespace, level := e.opts.Pods.Namespace(), e.cluster.PodSecurity
	switch {
	case namespace == e.opts.AgentNamespace:
		return checkup.Warn("jobs run in the agent's own namespace "+namespace+", where a job that can create pods can read the agent's token",
			"set kubernetes_namespace to a namespace for jobs only")
	case !e.cluster.Readable:
		return checkup.OK("jobs run in namespace " + namespace + ", whose labels the agent may not read")
	case level == "" || level == "privileged":
		return checkup.Warn("namespace "+namespace+" enforces no Pod Security Standard, so anyone who controls the agent can create privileged pods there",
			"add the label pod-security.kubernetes.io/enforce=baseline to it, or restricted")
	}
	return checkup.OK("jobs run in namespace " + namespace + ", which enforces the Pod Security Standard " + level)
}

// checkAdmission has the cluster check the pod of the trial job without creating it.
func (e *examination) checkAdmission(ctx context.Context) checkup.Result {
	image, _, err := e.podImage()
	if err != nil {
		return checkup.Fail(splitAdvice(err.Error(), ""))
	}
	spec := e.trialSpec()
	spec.Image = &workflow.Image{Reference: image}
	spec.Workspace = strings.Repeat("0", 64) // the cluster can refuse the volume
	verdict, err := e.opts.Cluster.TryPod(ctx, spec)
	if err != nil {
		return checkup.Fail(err.Error(), "correct the settings of the Kubernetes target, then run doctor again")
	}
	if verdict.Cause != "" {
		return checkup.Fail("the cluster refuses the pods of jobs: "+verdict.Words, refusalAdvice(verdict.Cause, e.opts.Pods.Namespace()))
	}
	if len(verdict.Warnings) > 0 {
		return checkup.Warn("the cluster accepts the pods of jobs, but warns", "change the pod template, so that it meets what the namespace asks for",
			slices.Concat(verdict.Warnings, verdict.Changed)...)
	}
	return checkup.OK("the cluster accepts the pods of jobs", verdict.Changed...)
}

func refusalAdvice(cause, namespace string) string {
	switch cause {
	case "quota":
		return "set num_cpus and mem_quantity, and limits in the pod template, to what the quota of namespace " + namespace + " allows, or raise the quota; a full quota only delays jobs"
	case "limits":
		return "set num_cpus and mem_quantity, and resources in the pod template, within the LimitRange of namespace " + namespace + ", or change the LimitRange"
	case "podsecurity":
		return "change the pod template to meet the standard (docs/pod-template.md, Without root), set kubernetes_workspace_claim instead of kubernetes_workspace_host_path, or enforce a weaker one in namespace " + namespace
	case "account":
		return "create the service account in namespace " + namespace + ", or correct service_account_name"
	case "namespace":
		return "create namespace " + namespace + ", or correct kubernetes_namespace"
	}
	return "change the pod template, or the policy that refuses the pod; config pod prints the pod"
}

func (e *examination) checkTemplate(context.Context) checkup.Result {
	if e.opts.Pods == nil {
		return checkup.Skip("no configuration of pods can be read") // the check of the cluster has the error
	}
	origin, notes := e.opts.Pods.Origin(), e.opts.Pods.Notes()
	switch {
	case origin == "":
		return checkup.OK("no pod template")
	case len(notes) > 0:
		return checkup.Warn("the pod template from "+origin+" weakens the isolation of jobs, or limits their time",
			"check that each point is intended; config pod prints the pod", notes...)
	}
	return checkup.OK("the pod template from " + origin + " is valid")
}

// podImage returns the image of the trial job in a pod, and whether the administrator named it. The
// cluster pulls it when the job starts.
func (e *examination) podImage() (image string, asked bool, err error) {
	c := e.opts.Config
	named := cmp.Or(e.opts.JobImage, c.Agent.OverrideImageReference)
	image = cmp.Or(named, defaultImage)
	if !c.AllowsImage(image) {
		return "", false, fmt.Errorf("allowed_images does not allow %s: name another image with --job-image", image)
	}
	return image, named != "", nil
}
