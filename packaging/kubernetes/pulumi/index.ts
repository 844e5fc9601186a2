// Installs the agent with the values of the stack's configuration. docs/kubernetes.md lists them.
import * as k8s from "@pulumi/kubernetes";
import * as pulumi from "@pulumi/pulumi";
import { PulumiSelfHostedAgentComponent } from "./agent";

const config = new pulumi.Config();
const agentNamespace = config.require("agentNamespace");
const jobNamespace = config.get("jobNamespace") ?? `${agentNamespace}-jobs`;
const renderYamlToDirectory = config.get("renderYamlToDirectory");

const provider = new k8s.Provider("kubernetes", renderYamlToDirectory ? { renderYamlToDirectory } : {});

const namespaces = (
    jobNamespace === agentNamespace
        ? [{ name: agentNamespace, podSecurity: "baseline" }]
        : [
              { name: agentNamespace, podSecurity: "restricted" },
              // Many images run as root. If yours do not, enforce restricted.
              { name: jobNamespace, podSecurity: "baseline" },
          ]
).map(
    ({ name, podSecurity }) =>
        new k8s.core.v1.Namespace(
            name,
            {
                metadata: {
                    name,
                    labels: {
                        "app.kubernetes.io/name": "customer-managed-workflow-agent",
                        "pod-security.kubernetes.io/enforce": podSecurity,
                    },
                },
            },
            { provider },
        ),
);

// The account of the jobs. To give them a cloud identity, add the annotations that your cloud
// documents, such as eks.amazonaws.com/role-arn.
const workerServiceAccount = new k8s.core.v1.ServiceAccount(
    "workflow-runner",
    {
        metadata: {
            name: "workflow-runner",
            namespace: jobNamespace,
            labels: { "app.kubernetes.io/name": "customer-managed-workflow-agent" },
            annotations: config.getObject<Record<string, string>>("workerServiceAccountAnnotations"),
        },
        automountServiceAccountToken: false,
    },
    { provider, dependsOn: namespaces },
);

const agent = new PulumiSelfHostedAgentComponent(
    "workflow-agent",
    {
        namespace: agentNamespace,
        jobNamespace,
        accessToken: config.requireSecret("selfHostedAgentsAccessToken"),
        serviceUrl: config.get("selfHostedServiceURL"),
        image: config.require("agentImage"),
        imagePullPolicy: config.get("agentImagePullPolicy"),
        replicas: config.getNumber("agentReplicas"),
        numCpus: config.get("agentNumCpus"),
        memQuantity: config.get("agentMemQuantity"),
        workerServiceAccount: workerServiceAccount.metadata.name,
        podTemplate: config.getObject<object>("podTemplate"),
        caCertificateSecretName: config.get("caCertificateSecretName"),
        enableServiceMonitor: config.getBoolean("enableServiceMonitor"),
        enableNetworkPolicy: config.getBoolean("enableNetworkPolicy"),
        settings: config.getObject<Record<string, string>>("agentSettings"),
    },
    { provider, dependsOn: namespaces },
);

export const deployment = agent.deployment.metadata.name;
