import type { Schema } from '../src/storage/columns.ts'

/** Which invitations an identity provider made, and not a person: it is not for the provider to accept them too. */
export async function up({ db, integer }: Schema): Promise<void> {
  await db.schema
    .alterTable('organization_memberships')
    .addColumn('provisioned', integer, (c) => c.notNull().defaultTo(0))
    .execute()
}
