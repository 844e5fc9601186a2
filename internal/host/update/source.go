package update

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	upstream "github.com/creativeprojects/go-selfupdate"
	"github.com/google/go-github/v86/github"

	"workflowagent/internal/host/release"
)

// newSource returns the source for one search. want is the requested version, or "" for the newest
// release.
func (f *Finder) newSource(want string) upstream.Source {
	if f.owner != "" {
		return &gitHub{Finder: f, want: want}
	}
	return &mirror{Finder: f, want: want}
}

// wanted returns the names of the release's files that an update needs.
func (f *Finder) wanted(version string) ([]string, error) {
	archive, err := release.Archive(version, f.goos, f.goarch)
	return []string{archive, release.ChecksumsFile, release.ChecksumsFile + release.SignatureSuffix}, err
}

// mirror is a source for a directory with releases on any HTTP server. go-selfupdate's own source
// does not support a signed channel file, a second validation file or a custom client.
type mirror struct {
	*Finder

	want  string
	links []*url.URL // URLs of the assets; an asset's ID is its index
}

func (m *mirror) ListReleases(ctx context.Context, _ upstream.Repository) ([]upstream.SourceRelease, error) {
	found := &upstream.HttpRelease{TagName: m.want}
	if m.want == "" {
		channel, err := m.channel(ctx)
		if err != nil {
			return nil, err
		}
		found.TagName, found.PublishedAt = channel.Version, channel.Published
	} else if _, err := m.small(ctx, m.want+"/"+release.ChecksumsFile); errors.Is(err, ErrNotFound) {
		return nil, fmt.Errorf("%w: %w", ErrNotFound, err)
	} else if err != nil {
		return nil, err
	}
	names, err := m.wanted(found.TagName)
	if err != nil {
		return nil, err
	}
	for i, name := range names {
		m.links = append(m.links, m.home.JoinPath(found.TagName, name))
		found.Assets = append(found.Assets, &upstream.HttpAsset{ID: int64(i), Name: name, URL: m.links[i].Redacted()})
	}
	return []upstream.SourceRelease{found}, nil
}

// channel reads the channel's signed file.
func (m *mirror) channel(ctx context.Context) (release.Channel, error) {
	var c release.Channel
	name := release.ChannelFile(m.Channel)
	text, err := m.small(ctx, name)
	if err != nil {
		return c, err
	}
	sign, err := m.small(ctx, name+release.SignatureSuffix)
	if err != nil {
		return c, err
	}
	if err := m.Keys.Verify(text, sign); err != nil {
		return c, fmt.Errorf("%s: %w", name, err)
	}
	if c, err = release.ParseChannel(text); err != nil {
		return c, err
	}
	// The signature does not cover the file's name, so check that stable.txt is not the file of the
	// beta channel.
	if m.Channel == release.Stable && strings.Contains(c.Version, "-") {
		return c, fmt.Errorf("%s names %s, which is not a stable release: the mirror mixes up its channels", name, c.Version)
	}
	if c.Published.After(time.Now().Add(maxAhead)) {
		return c, fmt.Errorf("%s is dated in the future (%s): check this machine's clock", name, c.Published.Format(time.RFC3339))
	}
	return c, remember(m.Memory, m.home.Redacted(), m.Channel, c)
}

// maxAhead is the maximum accepted difference between the publisher's clock and this machine's
// clock.
const maxAhead = 24 * time.Hour

func (m *mirror) small(ctx context.Context, name string) ([]byte, error) {
	body, _, err := get(ctx, m.client(maxSmall), m.home.JoinPath(name))
	if err != nil {
		return nil, err
	}
	data, err := readSmall(body)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", m.home.JoinPath(name).Redacted(), err)
	}
	return data, nil
}

// DownloadReleaseAsset opens a file of the release. The returned reader is a [sized].
func (m *mirror) DownloadReleaseAsset(ctx context.Context, _ *upstream.Release, id int64) (io.ReadCloser, error) {
	body, size, err := get(ctx, m.client(maxArchive), m.links[id])
	if err != nil {
		return nil, err
	}
	return sized{body, size}, nil
}

// sized is a download with its size. The size is -1 if it is unknown.
type sized struct {
	io.ReadCloser
	size int64
}

// gitHub is a source for releases on GitHub. go-selfupdate's own source does not accept a client,
// and sends GITHUB_TOKEN to any host.
type gitHub struct {
	*Finder

	want string
}

func (g *gitHub) api(limit int64) *github.Client {
	api := github.NewClient(g.client(limit))
	api.BaseURL = g.home
	api.UserAgent = userAgent
	return api
}

// ListReleases returns the requested release. If none is requested, it returns the complete
// releases among the newest 100.
func (g *gitHub) ListReleases(ctx context.Context, _ upstream.Repository) ([]upstream.SourceRelease, error) {
	var all []*github.RepositoryRelease
	var resp *github.Response
	var err error
	repositories := g.api(maxList).Repositories
	if g.want == "" {
		all, resp, err = repositories.ListReleases(ctx, g.owner, g.repo, &github.ListOptions{PerPage: 100})
	} else {
		var one *github.RepositoryRelease
		one, resp, err = repositories.GetReleaseByTag(ctx, g.owner, g.repo, g.want)
		all = append(all, one)
	}
	if resp != nil && resp.StatusCode == http.StatusNotFound {
		return nil, fmt.Errorf("%w in the repository %s/%s", ErrNotFound, g.owner, g.repo)
	}
	if err != nil {
		return nil, err
	}
	var fit []upstream.SourceRelease
	for _, one := range all {
		if found := g.complete(upstream.NewGitHubRelease(one)); found != nil {
			fit = append(fit, found)
		}
	}
	return fit, nil
}

// complete returns the release with only the required files. It returns nil if the version is not
// in the channel, or if files are missing, as during an upload.
func (g *gitHub) complete(from upstream.SourceRelease) *upstream.HttpRelease {
	found := &upstream.HttpRelease{
		TagName: from.GetTagName(), PublishedAt: from.GetPublishedAt(), Draft: from.GetDraft(), Prerelease: from.GetPrerelease(), URL: from.GetURL(),
	}
	names, err := g.wanted(found.TagName)
	if err != nil || g.want == "" && g.Channel == release.Stable && strings.Contains(found.TagName, "-") {
		return nil
	}
	assets := from.GetAssets()
	for _, name := range names {
		i := slices.IndexFunc(assets, func(a upstream.SourceAsset) bool { return a.GetName() == name })
		if i < 0 {
			return nil
		}
		found.Assets = append(found.Assets, &upstream.HttpAsset{ID: assets[i].GetID(), Name: name, Size: assets[i].GetSize()})
	}
	return found
}

func (g *gitHub) DownloadReleaseAsset(ctx context.Context, _ *upstream.Release, id int64) (io.ReadCloser, error) {
	body, _, err := g.api(maxArchive).Repositories.DownloadReleaseAsset(ctx, g.owner, g.repo, id, g.client(maxArchive))
	return body, err
}
