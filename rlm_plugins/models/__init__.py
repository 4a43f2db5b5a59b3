"""Everything with weights beside the policy: adapters, critics, reward models; and how a policy is loaded or made."""
