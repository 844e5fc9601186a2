package deployments

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"workflowagent/internal/server/store"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/integrations"
	"workflowagent/internal/workflow"
)

// trust is the class of what a deployment runs. Deployments of one class never read what those of
// another have kept. It is decided when the deployment is queued, from what the server knows then.
type trust string

// The classes, from the lowest to the highest.
const (
	// trustNone is for forks, and for everything whose origin is not proven.
	trustNone trust = store.TrustNone
	// trustBranch is for the branches, tags and pull requests of the stack's repository.
	trustBranch trust = "branch"
	// trustOwn is for exactly what the settings of the stack name.
	trustOwn trust = store.TrustOwn
)

var trusts = []trust{trustNone, trustBranch, trustOwn}

// atMost returns the lower of two classes.
func (t trust) atMost(limit trust) trust {
	return trusts[max(0, min(slices.Index(trusts, t), slices.Index(trusts, limit)))]
}

// origin is what a deployment runs, compared with the settings of its stack.
type origin struct {
	settings bool                       // the stack has settings
	git, own *workflow.SourceContextGit // of the deployment and of the settings; nil if the image contains the program
	same     bool                       // everything else that decides what runs is as in the settings
}

// originOf compares the settings of a deployment with those of its stack, which can be nil. watched is the
// repository from which these take the program, or nil if an integration does not know it. originOf must
// be called before secrets are encrypted again, because equal ones differ afterwards.
func originOf(set, stored *workflow.Settings, watched *integrations.Bound) origin {
	if stored == nil {
		return origin{}
	}
	own, complete := completeGit(stored, watched)
	return origin{settings: complete, git: set.Git(), own: own, same: sameContext(set, stored)}
}

// completeGit returns the git source of settings with its address. It changes nothing in the settings.
func completeGit(set *workflow.Settings, watched *integrations.Bound) (g *workflow.SourceContextGit, ok bool) {
	c := *set
	if set.SourceContext != nil {
		source := *set.SourceContext
		if source.Git != nil {
			git := *source.Git
			source.Git = &git
		}
		c.SourceContext = &source
	}
	if watched != nil {
		c.SetRepository(watched.CloneURL)
	}
	if c.CompleteSource() != nil || c.Deployable() != nil {
		return nil, false
	}
	return c.Git(), true
}

// sameContext reports whether two settings agree in the image, the commands, the variables and the environments.
func sameContext(a, b *workflow.Settings) bool {
	image := func(s *workflow.Settings) (reference, root string) {
		if c := s.ExecutorContext; c != nil {
			root = c.ExecutorRootPath
			if c.ExecutorImage != nil && !c.ExecutorImage.IsDefault {
				reference = c.ExecutorImage.Reference
			}
		}
		return reference, root
	}
	context := func(s *workflow.Settings) workflow.OperationContext {
		if s.OperationContext == nil {
			return workflow.OperationContext{}
		}
		return *s.OperationContext
	}
	imageA, rootA := image(a)
	imageB, rootB := image(b)
	return imageA == imageB && rootA == rootB && a.Option().Shell == b.Option().Shell &&
		slices.Equal(a.PreRunCommands(), b.PreRunCommands()) && slices.Equal(a.PostRunCommands(), b.PostRunCommands()) && slices.Equal(a.Environments(), b.Environments()) &&
		maps.EqualFunc(context(a).EnvironmentVariables, context(b).EnvironmentVariables, func(v, w workflow.Secret) bool { return reflect.DeepEqual(v, w) })
}

// trust returns the class. c is what a forge has proven about the checkout, or what the request implies;
// nil if neither is known.
func (o origin) trust(c *store.VCSCheckout) trust {
	source := o.source(c)
	switch {
	case o.same:
		return source
	case o.git == nil:
		return trustNone // the image is the source
	default:
		return source.atMost(trustBranch)
	}
}

// source returns the class of the source alone.
func (o origin) source(c *store.VCSCheckout) trust {
	if c == nil {
		c = &store.VCSCheckout{}
	}
	if !o.settings || c.Fork || (o.git == nil) != (o.own == nil) {
		return trustNone
	}
	if o.git == nil {
		return trustOwn
	}
	if !sameRepository(o.git.RepoURL, o.own.RepoURL) {
		return trustNone
	}
	ref, own := requestedRef(o.git), requestedRef(o.own)
	if o.git.Commit != "" {
		switch named := strings.EqualFold(o.git.Commit, o.own.Commit); {
		case named:
		case !strings.EqualFold(c.CommitID, o.git.Commit) || c.Ref == "":
			// A commit that a user names can be one of a fork: forges offer these from the repository, too.
			return trustNone
		case c.Pull > 0:
			return trustBranch // the forge has confirmed that a branch of the repository has the commit
		default:
			ref = c.Ref
		}
	}
	switch {
	case ref != "" && !strings.HasPrefix(ref, vcs.BranchPrefix) && !strings.HasPrefix(ref, vcs.TagPrefix):
		return trustNone // such as that of a pull request, which can be from a fork
	case ref == own && o.git.RepoDir == o.own.RepoDir && c.Pull == 0 && (o.own.Commit == "" || o.git.Commit != ""):
		return trustOwn
	default:
		return trustBranch
	}
}

// sameRepository reports whether two addresses name one repository of one server. With SSH, the user
// can decide whose home directory a path is in.
func sameRepository(a, b string) bool {
	first, err1 := workflow.ParseRepository(a)
	second, err2 := workflow.ParseRepository(b)
	if err1 != nil || err2 != nil || first.Scheme != second.Scheme || first.Name() != second.Name() {
		return false
	}
	return first.Scheme != "ssh" || first.User == second.User && strings.HasPrefix(first.Path(), "/") == strings.HasPrefix(second.Path(), "/")
}
