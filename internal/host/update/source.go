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

// newSource returns the source of one search; want is "" for the newest release.
func (f *Finder) newSource(want string) upstream.Source {
	if f.owner != "" {
		return &gitHub{Finder: f, want: want}
	}
	return &mirror{Finder: f, want: want, links: map[int64]*url.URL{}}
}

func (f *Finder) wanted(version string) ([]string, error) {
	archive, err := release.Archive(version, f.goos, f.goarch)
	return []string{archive, release.ChecksumsFile, release.ChecksumsFile + release.SignatureSuffix}, err
}

// mirror is a directory with releases on any HTTP server. go-selfupdate's own source knows no
// signed channel file, downloads no second validation file, and takes no client.
type mirror struct {
	*Finder

	want  string
	links map[int64]*url.URL // by the number of the asset
}

func (m *mirror) ListReleases(ctx context.Context, _ upstream.Repository) ([]upstream.SourceRelease, error) {
	found := listed{version: m.want}
	if m.want == "" {
		channel, err := m.channel(ctx)
		if err != nil {
			return nil, err
		}
		found = listed{version: channel.Version, published: channel.Published}
	} else if err := m.exists(ctx); err != nil {
		return nil, err
	}
	names, err := m.wanted(found.version)
	if err != nil {
		return nil, err
	}
	for i, name := range names {
		id := int64(i + 1)
		m.links[id] = m.home.JoinPath(found.version, name)
		found.assets = append(found.assets, file{id: id, name: name, url: m.links[id].Redacted()})
	}
	return []upstream.SourceRelease{found}, nil
}

// exists returns [ErrNotFound] if the mirror does not have the wanted release.
func (m *mirror) exists(ctx context.Context) error {
	_, err := m.small(ctx, m.want+"/"+release.ChecksumsFile)
	if errors.Is(err, ErrNotFound) {
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	return err
}

// channel reads the signed file of the channel.
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
	// The signature does not cover the file's name: keep the beta channel's file out of stable.
	if m.Channel == release.Stable && strings.Contains(c.Version, "-") {
		return c, fmt.Errorf("%s names %s, which is no stable release: the mirror mixes up its channels", name, c.Version)
	}
	if c.Published.After(m.now().Add(maxAhead)) {
		return c, fmt.Errorf("%s is dated in the future (%s): check this machine's clock", name, c.Published.Format(time.RFC3339))
	}
	return c, remember(m.Memory, m.home.Redacted(), m.Channel, c)
}

// maxAhead is how far the publisher's clock may be ahead of ours.
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

// DownloadReleaseAsset opens a file of the release as a [sized].
func (m *mirror) DownloadReleaseAsset(ctx context.Context, _ *upstream.Release, id int64) (io.ReadCloser, error) {
	link, ok := m.links[id]
	if !ok {
		return nil, upstream.ErrAssetNotFound
	}
	body, size, err := get(ctx, m.client(maxArchive), link)
	if err != nil {
		return nil, err
	}
	return sized{body, size}, nil
}

// sized is a download whose size is known, or -1.
type sized struct {
	io.ReadCloser
	size int64
}

// gitHub finds releases. go-selfupdate's source takes no client and sends GITHUB_TOKEN anywhere.
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

// ListReleases returns the wanted release, or the complete ones of the newest hundred.
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
		if found, ok := g.complete(upstream.NewGitHubRelease(one)); ok {
			fit = append(fit, found)
		}
	}
	return fit, nil
}

// complete returns the release with only the required files. ok is false while files are missing,
// as during an upload, and if its version does not fit the channel.
func (g *gitHub) complete(from upstream.SourceRelease) (found listed, ok bool) {
	found = listed{version: from.GetTagName(), published: from.GetPublishedAt(), draft: from.GetDraft(), prerelease: from.GetPrerelease(), page: from.GetURL()}
	names, err := g.wanted(found.version)
	if err != nil || g.want == "" && g.Channel == release.Stable && strings.Contains(found.version, "-") {
		return found, false
	}
	for _, name := range names {
		i := slices.IndexFunc(from.GetAssets(), func(a upstream.SourceAsset) bool { return a.GetName() == name })
		if i < 0 {
			return found, false
		}
		found.assets = append(found.assets, from.GetAssets()[i])
	}
	return found, true
}

func (g *gitHub) DownloadReleaseAsset(ctx context.Context, _ *upstream.Release, id int64) (io.ReadCloser, error) {
	body, _, err := g.api(maxArchive).Repositories.DownloadReleaseAsset(ctx, g.owner, g.repo, id, g.client(maxArchive))
	return body, err
}

// listed is a release of a source, with only the required files.
type listed struct {
	version, page     string
	published         time.Time
	draft, prerelease bool
	assets            []upstream.SourceAsset
}

// The methods implement a release of go-selfupdate.

func (r listed) GetID() int64                      { return 1 }
func (r listed) GetTagName() string                { return r.version }
func (r listed) GetDraft() bool                    { return r.draft }
func (r listed) GetPrerelease() bool               { return r.prerelease }
func (r listed) GetPublishedAt() time.Time         { return r.published }
func (r listed) GetReleaseNotes() string           { return "" }
func (r listed) GetName() string                   { return r.version }
func (r listed) GetURL() string                    { return r.page }
func (r listed) GetAssets() []upstream.SourceAsset { return r.assets }

type file struct {
	id        int64
	name, url string
}

func (f file) GetID() int64                  { return f.id }
func (f file) GetName() string               { return f.name }
func (f file) GetSize() int                  { return 0 }
func (f file) GetBrowserDownloadURL() string { return f.url }
