package workflow

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The limits of names of repositories, in bytes.
const maxRepositoryName, maxNameElement = 512, 255

// RepositoryName returns a repository's name at a provider in the one form that all programs use:
// without escapes, surrounding slashes and the suffix .git. A name that users copy from an address of
// Azure DevOps can have escapes and the element _git. Names of the provider custom are paths below the
// address of a server, or addresses.
func RepositoryName(provider, name string) (string, error) {
	if provider == "custom" && isAddress(name) {
		return name, CheckRepoURL(name)
	}
	if isAddress(name) {
		return "", fmt.Errorf("%q is an address: write the name of the repository, such as %s", clip(name), nameForms[provider])
	}
	clean := strings.TrimSuffix(strings.Trim(name, "/"), ".git")
	if strings.Contains(clean, "%") {
		decoded, err := url.PathUnescape(clean)
		if err != nil || strings.Count(decoded, "/") != strings.Count(clean, "/") {
			return "", fmt.Errorf("%q contains an invalid escape sequence: write the name without escapes", clip(name))
		}
		clean = decoded
	}
	if provider == "azure_devops" {
		clean = withoutGit(clean)
	}
	least, spaces := 2, provider == "azure_devops" || provider == "custom"
	if provider == "custom" {
		least = 1
	}
	if !spaces && strings.Contains(clean, " ") {
		return "", fmt.Errorf("%q contains a space: write the path of the repository in its address, such as %s, not its title", clip(name), nameForms[provider])
	}
	if err := CheckRepositoryName(clean, least); err != nil {
		return "", err
	}
	return clean, nil
}

// nameForms are the forms of names, by provider.
var nameForms = map[string]string{
	"azure_devops": "organization/project/repository", "bitbucket": "workspace/repository", "custom": "team/repository",
	"github": "owner/repository", "gitlab": "group/project",
}

func isAddress(name string) bool {
	user, _, short := strings.Cut(name, ":")
	return strings.Contains(name, "://") || short && strings.Contains(user, "@") && !strings.Contains(user, "/")
}

// withoutGit returns a name of Azure DevOps without the element _git of addresses. The address of the
// repository that has its project's name does not repeat it.
func withoutGit(name string) string {
	elements := strings.Split(name, "/")
	at := slices.Index(elements, "_git")
	switch {
	case at == 2 && len(elements) == 4:
		return strings.Join(slices.Delete(elements, at, at+1), "/")
	case at == 1 && len(elements) == 3:
		return elements[0] + "/" + elements[2] + "/" + elements[2]
	}
	return name
}

// CheckRepositoryName returns an error unless a name is in the form of [RepositoryName], with a number of
// elements or more.
func CheckRepositoryName(name string, least int) error {
	elements := strings.Split(name, "/")
	switch {
	case name == "":
		return errors.New("it is empty")
	case strings.HasPrefix(name, "-"):
		return errors.New("it starts with a dash")
	case len(name) > maxRepositoryName:
		return fmt.Errorf("it is longer than %d bytes", maxRepositoryName)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, isOddInName):
		return fmt.Errorf("%q contains a character that names of repositories do not have", clip(name))
	case slices.ContainsFunc(elements, isOddElement):
		return fmt.Errorf("%q is not the name of a repository", clip(name))
	case len(elements) < least:
		return fmt.Errorf("%q does not look like owner/name", clip(name))
	}
	return nil
}

func isOddInName(r rune) bool {
	return !unicode.IsPrint(r) || strings.ContainsRune(`\%?#`, r) || r == utf8.RuneError
}

func isOddElement(e string) bool {
	return e == "" || e == "." || e == ".." || len(e) > maxNameElement || strings.TrimSpace(e) != e
}
