package workflow

import (
	"slices"
	"strings"
)

// publicHosts are the other names of the hosts of public forges, such as those for SSH on port 443.
var publicHosts = map[string]string{
	"github.com": "github.com", "www.github.com": "github.com", "ssh.github.com": "github.com",
	"gitlab.com": "gitlab.com", "altssh.gitlab.com": "gitlab.com",
	"bitbucket.org": "bitbucket.org", "www.bitbucket.org": "bitbucket.org", "altssh.bitbucket.org": "bitbucket.org",
}

// azureHosts are the hosts of Azure DevOps for SSH, whose addresses in the form user@host:path contain
// escapes.
var azureHosts = []string{"ssh.dev.azure.com", "vs-ssh.visualstudio.com"}

// Same reports whether two addresses are those of one repository, in the forms that public forges have
// and had, or with another protocol of one server. It is no reason to send a credential to the other
// address.
func (r *Repository) Same(other *Repository) bool {
	if r.Name() == other.Name() {
		return true
	}
	host, path, public := r.forge()
	otherHost, otherPath, otherPublic := other.forge()
	if public && otherPublic {
		return host == otherHost && strings.EqualFold(path, otherPath)
	}
	// A server has other ports for other protocols.
	return (r.Scheme == "ssh") != (other.Scheme == "ssh") && host == otherHost && path == otherPath
}

// forge returns the host without a port, and the path of the repository there. public is set for public
// forges, which have one form here.
func (r *Repository) forge() (host, path string, public bool) {
	full, path, _ := strings.Cut(r.Name(), "/")
	host = full
	if end := strings.LastIndexByte(full, ':'); end >= 0 && !strings.HasSuffix(full, "]") {
		host = full[:end]
	}
	if name, ok := publicHosts[host]; ok {
		return name, path, true
	}
	if path, ok := azurePath(host, strings.Split(path, "/")); ok {
		return "dev.azure.com", path, true
	}
	return host, path, false
}

// azurePath returns organization/project/repository for an address of Azure DevOps.
func azurePath(host string, elements []string) (path string, ok bool) {
	organization, former := strings.CutSuffix(host, ".visualstudio.com")
	switch {
	case slices.Contains(azureHosts, host) && len(elements) == 4 && elements[0] == "v3":
		return strings.Join(elements[1:], "/"), true
	case host == "dev.azure.com" && len(elements) > 1:
		organization, elements = elements[0], elements[1:]
	case !former || organization == "vs-ssh":
		return "", false
	}
	if len(elements) > 1 && strings.EqualFold(elements[0], "DefaultCollection") {
		elements = elements[1:]
	}
	// The elements _full and _optimized choose how much a clone contains.
	elements = slices.DeleteFunc(slices.Clone(elements), func(e string) bool { return e == "_full" || e == "_optimized" })
	at := slices.IndexFunc(elements, func(e string) bool { return e == "_git" || e == "_ssh" })
	switch {
	case at == 1 && len(elements) == 3:
		return organization + "/" + elements[0] + "/" + elements[2], true
	case at == 0 && len(elements) == 2: // the repository has its project's name
		return organization + "/" + elements[1] + "/" + elements[1], true
	}
	return "", false
}
