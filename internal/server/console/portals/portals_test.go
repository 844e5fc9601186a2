package portals_test

import (
	"testing"

	"workflowagent/internal/server/console/portals"
)

func TestOf(t *testing.T) {
	const (
		cloud = "https://console.aws.amazon.com"
		azure = "/subscriptions/0b1f6471-1bf0-4dda-aec3-cb9272f09590/resourceGroups/net_(eu)/providers/Microsoft.Network/virtualNetworks/hub"
	)
	for _, c := range []struct{ kind, id, output, want string }{
		{"aws:sqs/queue:Queue", "x", "arn:aws:sqs:eu-west-1:402940294029:ledger-in", cloud + "/sqs/v3/home?region=eu-west-1#/queues/https%3A%2F%2Fsqs.eu-west-1.amazonaws.com%2F402940294029%2Fledger-in"},
		{"aws:sqs/queue:Queue", "x", "arn:aws-cn:sqs:cn-north-1:402940294029:ledger-in", ""},
		{"aws:s3/bucketV2:BucketV2", "logs", "arn:aws:s3:::logs.example", cloud + "/s3/buckets/logs.example"},
		{"aws:s3/bucketObject:BucketObject", "x", "arn:aws:s3:::logs/a/b", ""},
		{"aws:lambda/function:Function", "x", "arn:aws-us-gov:lambda:us-gov-west-1:402940294029:function:charge", "https://console.amazonaws-us-gov.com/lambda/home?region=us-gov-west-1#/functions/charge"},
		{"aws:lambda/function:Function", "x", "arn:aws:lambda:eu-west-1:402940294029:function:charge:7", ""},
		{"aws:iam/role:Role", "x", "arn:aws:iam::402940294029:role/service/charge", cloud + "/iam/home#/roles/charge"},
		{"aws:rds/instance:Instance", "x", "arn:aws:rds:eu-west-1:402940294029:db:main", cloud + "/rds/home?region=eu-west-1#database:id=main;is-cluster=false"},
		{"aws:sns/topic:Topic", "arn:aws:sns:eu-west-1:402940294029:alarms", "", cloud + "/sns/v3/home?region=eu-west-1#/topic/arn:aws:sns:eu-west-1:402940294029:alarms"},
		{"aws:sns/topicSubscription:TopicSubscription", "x", "arn:aws:sns:eu-west-1:402940294029:alarms:9c1f", ""},
		{"aws:glue/job:Job", "x", "arn:aws:glue:eu-west-1:402940294029:job/nightly", ""},
		{"aws:s3/bucket:Bucket", "x", "arn:aws:s3:::a\"><script>", ""},
		{"aws:ec2/vpc:Vpc", "x", "arn:aws:ec2:evil.example/:402940294029:vpc/vpc-1", ""},
		{"aws:ec2/vpc:Vpc", "x", "arn:aws:ec2:eu-west-1:402940294029:vpc/vpc-0f3a99c1d7", cloud + "/vpc/home?region=eu-west-1#VpcDetails:VpcId=vpc-0f3a99c1d7"},
		{"azure-native:network:VirtualNetwork", azure, "", "https://portal.azure.com/#@/resource" + azure},
		{"azure-native:network:VirtualNetwork", azure + "/../../@evil.example?x", "", ""},
		{"azure:core/resourceGroup:ResourceGroup", "javascript:alert(1)", "", ""},
		{"gcp:compute/instance:Instance", "x", "https://www.googleapis.com/compute/v1/projects/pay-1/zones/europe-west1-b/instances/web", "https://console.cloud.google.com/compute/instancesDetail/zones/europe-west1-b/instances/web?project=pay-1"},
		{"gcp:storage/bucket:Bucket", "x", "https://www.googleapis.com/storage/v1/b/logs", "https://console.cloud.google.com/storage/browser/logs"},
		{"gcp:storage/bucket:Bucket", "x", "https://www.googleapis.com/storage/v1/b/..", ""},
		{"gcp:storage/bucket:Bucket", "x", "https://evil.example/storage/v1/b/logs", ""},
		{"gcp:storage/bucket:Bucket", "x", "https://www.googleapis.com/storage/v1/b/a?b#c", ""},
		{"github:index/repository:Repository", "x", "https://github.com/acme/payments", "https://github.com/acme/payments"},
		{"github:index/repository:Repository", "x", "https://github.com@evil.example/a/b", ""},
		{"random:index/randomPet:RandomPet", "arn:aws:s3:::logs", "arn:aws:s3:::logs", ""},
	} {
		got := portals.Of(c.kind, c.id, func(string) string { return c.output })
		if got.Href != c.want || (got.Text == "") != (c.want == "") {
			t.Errorf("%s, %s, %s: %+v, want %q", c.kind, c.id, c.output, got, c.want)
		}
	}
}
