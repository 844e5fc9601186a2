// Package portals knows the pages about resources in the consoles of their providers. Its table is the only place with such
// addresses. A resource without a line in it has no link: a wrong one is worse than none.
package portals

import (
	"net/url"
	"regexp"
	"strings"
)

// Link is a page in the console of a provider.
type Link struct {
	// Text names the console. It is "" without a link.
	Text, Href string
}

// Of returns the page about a resource. output returns an output that is a text, or "". Types, ids and outputs come from
// programs, so that only those of a known form become a part of the address, and the host is always one of this file.
func Of(kind, id string, output func(name string) string) Link {
	provider, _, _ := strings.Cut(kind, ":")
	switch provider {
	case "aws", "aws-native":
		arn := output("arn")
		if arn == "" && strings.HasPrefix(id, "arn:") {
			arn = id
		}
		return link("AWS", amazon(arn))
	case "azure", "azure-native":
		return link("Azure", azure(id))
	case "gcp", "google-native":
		return link("Google Cloud", google(output("selfLink")))
	case "github":
		return link("GitHub", github(output("htmlUrl")))
	default:
		return Link{}
	}
}

func link(console, href string) Link {
	if href == "" {
		return Link{}
	}
	return Link{"Open in " + console, href}
}

// arns match the names of Amazon resources: partition, service, region, account, resource.
var arns = regexp.MustCompile(`^arn:(aws|aws-us-gov|aws-cn):([a-z0-9-]+):([a-z]{2}(?:-[a-z]+)+-\d)?:(\d{12})?:([A-Za-z0-9_.+=,@/:-]+)$`)

// amazonHosts are the consoles of the partitions.
var amazonHosts = map[string]string{"aws": "console.aws.amazon.com", "aws-us-gov": "console.amazonaws-us-gov.com", "aws-cn": "console.amazonaws.cn"}

// amazonPages are the pages by service and by the beginning of the resource. In an address, NAME is the rest of it, LAST is
// the last part of its path, and REGION, ACCOUNT and ARN are those of the name.
var amazonPages = []struct{ service, begin, page string }{
	{"cloudfront", "distribution/", "/cloudfront/v4/home#/distributions/NAME"},
	{"cloudwatch", "alarm:", "/cloudwatch/home?region=REGION#alarmsV2:alarm/NAME"},
	{"dynamodb", "table/", "/dynamodbv2/home?region=REGION#table?name=NAME"},
	{"ec2", "instance/", "/ec2/home?region=REGION#InstanceDetails:instanceId=NAME"},
	{"ec2", "security-group/", "/ec2/home?region=REGION#SecurityGroup:groupId=NAME"},
	{"ec2", "subnet/", "/vpc/home?region=REGION#SubnetDetails:subnetId=NAME"},
	{"ec2", "vpc/", "/vpc/home?region=REGION#VpcDetails:VpcId=NAME"},
	{"eks", "cluster/", "/eks/home?region=REGION#/clusters/NAME"},
	{"iam", "role/", "/iam/home#/roles/LAST"},
	{"iam", "user/", "/iam/home#/users/LAST"},
	{"kms", "key/", "/kms/home?region=REGION#/kms/keys/NAME"},
	{"lambda", "function:", "/lambda/home?region=REGION#/functions/NAME"},
	{"rds", "cluster:", "/rds/home?region=REGION#database:id=NAME;is-cluster=true"},
	{"rds", "db:", "/rds/home?region=REGION#database:id=NAME;is-cluster=false"},
	{"s3", "", "/s3/buckets/NAME"},
	{"sns", "", "/sns/v3/home?region=REGION#/topic/ARN"},
	{"sqs", "", "/sqs/v3/home?region=REGION#/queues/https%3A%2F%2Fsqs.REGION.amazonaws.com%2FACCOUNT%2FNAME"},
}

func amazon(arn string) string {
	found := arns.FindStringSubmatch(arn)
	if found == nil {
		return ""
	}
	partition, service, region, account, resource := found[1], found[2], found[3], found[4], found[5]
	for _, p := range amazonPages {
		rest, ok := strings.CutPrefix(resource, p.begin)
		if p.service != service || !ok {
			continue
		}
		last := rest[strings.LastIndexByte(rest, '/')+1:]
		switch {
		case strings.Contains(p.page, "REGION") && region == "", strings.Contains(p.page, "ACCOUNT") && account == "",
			strings.Contains(p.page, "ACCOUNT") && partition != "aws", // queues have other addresses there
			strings.Contains(p.page, "NAME") && (rest == "" || strings.ContainsAny(rest, "/:")), strings.Contains(p.page, "LAST") && last == "",
			service == "sns" && strings.Contains(rest, ":"): // a subscription
			return ""
		}
		values := strings.NewReplacer("REGION", region, "ACCOUNT", account, "ARN", url.PathEscape(arn), "NAME", url.PathEscape(rest), "LAST", url.PathEscape(last))
		return "https://" + amazonHosts[partition] + values.Replace(p.page)
	}
	return ""
}

// azureIDs match the ids of Azure resources.
var azureIDs = regexp.MustCompile(`^/subscriptions/[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}(?:/[A-Za-z0-9_.()-]+)+$`)

func azure(id string) string {
	if !azureIDs.MatchString(id) {
		return ""
	}
	return "https://portal.azure.com/#@/resource" + id
}

// part matches a name in the address of a Google resource.
const part = `([a-zA-Z0-9](?:[a-zA-Z0-9_.:-]*[a-zA-Z0-9])?)`

// googlePages are the pages by the address of the resource in the API.
var googlePages = []struct {
	api  *regexp.Regexp
	page string
}{
	{api(`https://www\.googleapis\.com/compute/v1/projects/P/zones/P/instances/P`), "/compute/instancesDetail/zones/$2/instances/$3?project=$1"},
	{api(`https://www\.googleapis\.com/compute/v1/projects/P/zones/P/disks/P`), "/compute/disksDetail/zones/$2/disks/$3?project=$1"},
	{api(`https://www\.googleapis\.com/compute/v1/projects/P/global/networks/P`), "/networking/networks/details/$2?project=$1"},
	{api(`https://www\.googleapis\.com/compute/v1/projects/P/regions/P/subnetworks/P`), "/networking/subnetworks/details/$2/$3?project=$1"},
	{api(`https://www\.googleapis\.com/storage/v1/b/P`), "/storage/browser/$1"},
	{api(`https://container\.googleapis\.com/v1(?:beta1)?/projects/P/(?:locations|zones)/P/clusters/P`), "/kubernetes/clusters/details/$2/$3/details?project=$1"},
	{api(`https://(?:sqladmin|www)\.googleapis\.com/sql/v1beta4/projects/P/instances/P`), "/sql/instances/$2/overview?project=$1"},
}

func api(pattern string) *regexp.Regexp {
	return regexp.MustCompile("^" + strings.ReplaceAll(pattern, "/P", "/"+part) + "$")
}

func google(self string) string {
	for _, p := range googlePages {
		if at := p.api.FindStringSubmatchIndex(self); at != nil {
			return "https://console.cloud.google.com" + string(p.api.ExpandString(nil, p.page, self, at))
		}
	}
	return ""
}

// repositories match the addresses of repositories at GitHub.
var repositories = regexp.MustCompile(`^https://github\.com/[A-Za-z0-9-]+/[A-Za-z0-9_.-]+$`)

func github(address string) string {
	if !repositories.MatchString(address) {
		return ""
	}
	return address
}
