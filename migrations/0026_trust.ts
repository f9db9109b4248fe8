import type { Schema } from '../src/storage/columns.ts'

/**
 * Trust in the tokens that CI systems give to their jobs: the policies of organizations, where issuers publish their
 * keys, and which tokens were used. What leads to a policy is one of its claims, `name=value`: of thousands of policies
 * of one issuer a token finds its own.
 */
export async function up({ db, text, integer }: Schema): Promise<void> {
  await db.schema
    .createTable('trust_policies')
    .addColumn('id', text, (c) => c.primaryKey())
    .addColumn('org_id', text, (c) => c.notNull().references('organizations.id'))
    .addColumn('name', text, (c) => c.notNull())
    .addColumn('issuer', text, (c) => c.notNull())
    .addColumn('audience', text, (c) => c.notNull())
    .addColumn('claims', text, (c) => c.notNull())
    .addColumn('lead', text, (c) => c.notNull())
    .addColumn('permissions', text, (c) => c.notNull())
    .addColumn('max_usage', integer, (c) => c.notNull())
    .addColumn('max_ttl_minutes', integer, (c) => c.notNull())
    .addColumn('status', text, (c) => c.notNull())
    .addColumn('version', integer, (c) => c.notNull())
    .addColumn('created_by', text, (c) => c.notNull())
    .addColumn('created_at', text, (c) => c.notNull())
    .addColumn('updated_at', text, (c) => c.notNull())
    .addColumn('last_used_at', text)
    .execute()
  await db.schema
    .createIndex('trust_policies_org')
    .on('trust_policies')
    .columns(['org_id', 'created_at', 'id'])
    .execute()
  await db.schema
    .createIndex('trust_policies_lead')
    .on('trust_policies')
    .columns(['issuer', 'lead'])
    .execute()

  await db.schema
    .createTable('trust_issuers')
    .addColumn('issuer', text, (c) => c.primaryKey())
    .addColumn('jwks_url', text, (c) => c.notNull())
    .addColumn('discovered_at', text, (c) => c.notNull())
    .execute()

  await db.schema
    .createTable('trust_tokens')
    .addColumn('token_hash', text, (c) => c.primaryKey())
    .addColumn('expires_at', text, (c) => c.notNull())
    .execute()
  await db.schema.createIndex('trust_tokens_expiry').on('trust_tokens').column('expires_at').execute()
}
