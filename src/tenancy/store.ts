export * from './organizations/store.ts'
export * from './partners/store.ts'
export * from './sites/store.ts'
